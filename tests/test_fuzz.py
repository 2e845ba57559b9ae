"""Whatever a user, or a disk, hands over: an answer or one line; no code run, and no other numbers.

Each property is tried on examples until its share of the time is used: of fifteen seconds, or of ten minutes.
"""

import contextlib
import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from fuzz_inputs import (
    LAB,
    RECORD,
    SMALL,
    SPELLED,
    archives,
    configurations,
    extremes,
    records,
    weights,
)
from fuzzing import CANARY, DAMAGES, command, configuration, fuzz, json_with, written
from hypothesis import strategies as st
from report_runs import a_row
from timeless import timeless_rows

from glasshouse.defences import make_defences, split_defences
from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits
from glasshouse.listing import REGISTRIES
from glasshouse.registry import parse_spec
from glasshouse.store import slug

RUN = ("audit", "given.toml", "--workers", 1, "--quiet", "--out")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to work in, with a module of the user's, where commands write no pages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "lab.py").write_text(LAB)
    monkeypatch.setattr("glasshouse.api.write_report", lambda folder: None)
    return tmp_path


@pytest.fixture
def untrained(place, monkeypatch):
    """The same, where audits end when all that they were given is read and checked."""
    monkeypatch.setattr("glasshouse.auditing.run.run_battery", lambda *_, **__: ([], Exhibits()))
    return place


def read_or_refused(place, content):
    (place / "given.toml").write_bytes(content)
    shutil.rmtree(place / "run", ignore_errors=True)
    ended = command(*RUN, "run")
    ended.check(0, 2)
    if ended.code == 0:
        again = command(*RUN, "run")
        assert again.code == 0, again


def audited_or_refused(place, changed):
    (place / "given.toml").write_text(configuration(changed))
    shutil.rmtree(place / "run", ignore_errors=True)
    ended = command(*RUN, "run")
    ended.check(0, 2)
    if ended.code == 0:
        assert json.loads((place / "run" / "results.json").read_text())


def made_or_refused(place, example):
    kind, spec, name, options = example
    for make in (REGISTRIES[kind].make, make_defences):
        if make is make_defences or kind not in ("models", "data", "studies"):
            with contextlib.suppress(BadInput):
                make(spec)
        assert not (place / CANARY).exists(), spec
    spelled = f"{name}({', '.join(f'{option}={written(value)}' for option, value in options.items())})"
    if len(spelled) <= 10_000:
        assert parse_spec(spelled, kind) == (name, options)
        assert split_defences(f"none+{name}") == ["none", name]
    assert 0 < len(slug(spec or "x").encode()) < 120


def vetted_or_refused(place, example):
    suffix, content = example
    (place / f"given.{suffix}").write_bytes(content)
    ended = command("vet", f"given.{suffix}", "--model", "mlp", "--shape", "1x8x8", "--classes", 4)
    ended.check(0, 1, 2)
    assert ended.out.partition(":")[0] == {0: "clean", 1: "CRAFTED", 2: ""}[ended.code]


def loaded_or_refused(place, content):
    (place / "given.npz").write_bytes(content)
    shutil.rmtree(place / "run", ignore_errors=True)
    command("audit", "--data", "given.npz", "--model", "mlp", "--out", "run", "--quiet").check(0, 2)


def read_in_whole_or_refused(place, example):
    """A record is audited or refused in one line, and stays as it is."""
    name, content = example
    shutil.rmtree(place / "run", ignore_errors=True)
    for file, whole in RECORD.items():
        path = place / "rec" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if file == name else whole)
    ended = command("audit", "rec", "--out", "run", "--quiet", "--workers", 1)
    ended.check(0, 2)
    assert (place / "run").exists() == (ended.code == 0)
    assert (place / "rec" / name).read_bytes() == content


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A finished run, and its configuration."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr("glasshouse.api.write_report", lambda folder: None)
        Path("given.toml").write_text(configuration(SMALL))
        command(*RUN, "run").check(0)
    return folder


def numbers(run):
    """The findings without the time they took."""
    return timeless_rows(json.loads((run / "results.json").read_text()))


def kept_files(folder):
    return sorted(str(file.relative_to(folder)) for file in (folder / "run").rglob("*") if file.is_file())


@st.composite
def losses(draw, files):
    """A file, another one of its kind, what happens to it, and how it is damaged if that is it."""
    file = draw(st.sampled_from(files))
    other = draw(st.sampled_from([other for other in files if Path(other).suffix == Path(file).suffix]))
    what = draw(st.sampled_from(["damage", "damage", "damage", "delete", "folder", "another"]))
    return file, other, what, draw(DAMAGES)


def same_or_remedied(place, folder, example):
    """The same numbers come from a damaged run, at once or when the one line that is told is followed."""
    file, other, loss, damage = example
    shutil.rmtree(place / "run", ignore_errors=True)
    shutil.copytree(folder / "run", place / "run")
    shutil.copy(folder / "given.toml", place)
    damaged = place / file
    if loss == "damage":
        damaged.write_bytes(damage(damaged.read_bytes()))
    elif loss == "another":
        damaged.write_bytes((folder / other).read_bytes())
    else:
        damaged.unlink()
        if loss == "folder":
            damaged.mkdir()
    ended = command(*RUN, "run")
    ended.check(0, 2)
    out = "run"
    if ended.code == 2:
        out = followed(ended.err)
        command(*RUN, out).check(0)
    assert numbers(place / out) == numbers(folder / "run")


def followed(line):
    """Do what the line says; returns where the run shall go."""
    if named := re.search(r"delete the folder (\S+?):", line):
        shutil.rmtree(named[1])
    elif "delete the folder" in line:
        shutil.rmtree(re.match(r"glasshouse: (\S+)", line)[1])
    elif "choose another --out" in line:
        shutil.rmtree("other", ignore_errors=True)
        return "other"
    else:
        raise AssertionError(f"no remedy: {line}")
    return "run"


RESULTS = {
    "results.json": [
        a_row(),
        a_row(defence="x", reason="none", value=None),
        a_row(family="utility", adversary=None, attack=None, metric="test-accuracy"),
    ],
    "curves.json": {
        "training": [{"round": 1, "acc_global": 0.5}],
        "roc": [{"attack": "gap", "fpr": [0.0, 1.0], "tpr": [0.0, 1.0]}],
        "gallery": [{"original": "a.png", "result": "b.png"}],
    },
    "study.json": {
        "charts": [
            {"name": "c", "title": "t", "categories": ["a"], "series": [{"name": "s", "values": [0.5]}]}
        ],
        "tables": [{"name": "t", "title": "t", "columns": ["a"], "rows": [["b"]]}],
    },
    "environment.json": {"python": "3"},
    "config.toml": {"data": {"clients": 3}},
}


@st.composite
def results(draw):
    """One of the files that a page is made of, and another content of it."""
    name = draw(st.sampled_from([*RESULTS]))
    if draw(st.integers(0, 3)):
        return name, draw(json_with(RESULTS[name])).encode()
    return name, draw(DAMAGES)(json.dumps(RESULTS[name]).encode())


def shown_or_refused(place, example):
    name, content = example
    for file, value in RESULTS.items():
        (place / file).write_text(json.dumps(value))
    (place / name).write_bytes(content)
    command("report", ".").check(0, 2)


def told_when_damaged(place, folder, example):
    """A page is never made of other numbers than the run's."""
    file, damage = example
    shutil.copytree(folder / "run", place / "run", dirs_exist_ok=True)
    content = (folder / "run" / file).read_bytes()
    (place / "run" / file).write_bytes(damage(content))
    if damage(content) != content:
        command("report", "run").check(2)


def for_a_share(parts):
    """Of all the time, `parts` seconds in fifteen: these themselves or, slowly, of ten minutes."""
    return pytest.mark.parametrize("seconds", [parts, pytest.param(parts * 40, marks=pytest.mark.slow)])


@for_a_share(2)
def test_a_configuration_is_taken_or_refused_in_one_line_and_runs_no_code(untrained, seconds):
    fuzz(configurations(), partial(read_or_refused, untrained), seconds)


@for_a_share(3)
def test_a_run_at_the_ends_of_what_is_allowed_ends_or_is_refused_in_one_line(place, seconds):
    fuzz(extremes(), partial(audited_or_refused, place), seconds)


@for_a_share(1)
def test_a_spec_is_made_or_refused_and_what_is_spelled_reads_back(place, seconds):
    fuzz(SPELLED, partial(made_or_refused, place), seconds)


@for_a_share(2)
def test_weights_are_judged_or_refused_and_never_run(place, seconds):
    fuzz(weights(), partial(vetted_or_refused, place), seconds)


@for_a_share(1)
def test_data_are_loaded_or_refused(untrained, seconds):
    fuzz(archives(), partial(loaded_or_refused, untrained), seconds)


@for_a_share(1)
def test_a_record_is_audited_or_refused_and_nothing_of_it_is_run(place, monkeypatch, seconds):
    monkeypatch.setattr("glasshouse.auditing.recorded.run._battery", lambda *_, **__: ([], Exhibits()))
    fuzz(records(), partial(read_in_whole_or_refused, place), seconds)


@for_a_share(3)
def test_a_run_whose_kept_work_was_damaged_ends_with_the_same_numbers(place, whole, seconds):
    fuzz(losses(kept_files(whole)), partial(same_or_remedied, place, whole), seconds)


@for_a_share(2.5)
def test_a_page_is_shown_or_refused_in_one_line(place, seconds):
    fuzz(results(), partial(shown_or_refused, place), seconds)


@for_a_share(0.5)
def test_no_page_is_made_of_damaged_results(place, whole, seconds):
    files = st.sampled_from(["results.json", "curves.json"])
    fuzz(st.tuples(files, DAMAGES), partial(told_when_damaged, place, whole), seconds)
