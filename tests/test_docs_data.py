"""What docs/data.md shows is run as it stands."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glasshouse import Setting
from glasshouse.auditing.division import division_of
from glasshouse.data.sources import load
from glasshouse.data.split import split
from glasshouse.learning.seeds import derive
from glasshouse.verdicts.division import division_lines

TEXT = (Path(__file__).parent.parent / "docs" / "data.md").read_text()


def blocks(heading, language):
    """The fenced blocks under a heading, up to the next one."""
    section = re.split(r"^#{2,} ", TEXT.partition(f"# {heading}\n")[2], flags=re.M)[0]
    found = re.findall(r"^```(\w*)\n(.*?)^```", section, re.M | re.S)
    return [code for kind, code in found if kind == language]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_hospitals_of_the_page_become_what_it_says(here):
    (code,) = blocks("My data already belong to clients", "python")
    exec(code, {})
    (said,) = blocks("My data already belong to clients", "text")
    told = division_of(split(load("hospitals.npz"), seed=derive(Setting().seed, "split")))
    assert said.splitlines() == division_lines(told)


def test_the_table_of_the_page_is_read(here):
    _, table = blocks("My data already belong to clients", "")
    rows = [line.split(",") for line in f"{table}dog/001.png,south,member".splitlines()[1:]]
    for shade, (file, _, _) in enumerate(rows):
        (here / file).parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 4), shade, np.uint8)).save(here / file)
    (here / "clients.csv").write_text(f"{table}dog/001.png,south,member\n")
    data = load(str(here))
    assert data.clients.tolist() == [client for _, client, _ in rows]
    assert data.parts.tolist() == [part for _, _, part in rows]


def test_objects_of_the_page_say_who_holds_what(capsys):
    (code,) = blocks("In Python", "python")
    shown = {}
    exec(code, shown)
    assert capsys.readouterr().out.strip() == re.findall(r"# (\(.*\))", code)[0]
    assert [len(client) for client in shown["own"].clients] == [200, 60, 40]


def test_the_split_of_the_page_is_drawn():
    (code,) = blocks("Who holds what", "python")
    exec(code, {})


def test_the_partition_of_the_page_divides_by_brightness(here):
    (code,) = blocks("Divide them in your own way", "python")
    (here / "my_lab.py").write_text(code)
    (setting,) = blocks("Divide them in your own way", "toml")
    table = tomllib.loads(setting)["data"]
    parts = split(load("digits"), **table)
    brightness = [parts.client(k).x.mean().item() for k in range(table["clients"])]
    assert brightness == sorted(brightness)
    assert brightness[-1] > brightness[0] + 0.05
