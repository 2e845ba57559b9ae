"""The recipe that the docs show is run, and does what the page says of it."""

import math
import re
import tomllib
from pathlib import Path

import pytest

from glasshouse.access import QueryAccess, UpdateAccess
from glasshouse.auditing.examine import examine
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.foresight import why_not
from glasshouse.auditing.setting import make_setting
from glasshouse.auditing.target import Variant, train_target
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder

PAGE = (Path(__file__).parents[1] / "docs" / "bring-your-own.md").read_text()
SECTION = PAGE.partition("## My clients train like this")[2].partition("\n## ")[0]


def block(language):
    (code,) = re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    return code


def test_the_recipe_shown_trains_and_what_cannot_read_it_is_known_before(tmp_path, engine):
    shown = tomllib.loads(block("toml"))
    assert make_setting(shown).training.recipe().rounds == 50
    small = {"data": {"clients": 2, "members": 16, "nonmembers": 8, "auxiliary": 4, "test": 8}}
    experiment = prepare(make_setting(shown | small | {"training": shown["training"] | {"rounds": 6}}))
    reason = why_not(experiment, "label-counts", UpdateAccess)
    assert "adamw" in reason
    folder = RunFolder(tmp_path / "run", experiment.config(), experiment.origin)
    with Progress(quiet=True) as progress:
        target = train_target(experiment, folder, engine, progress, Variant("fedavg", "none"), [UpdateAccess])
    assert target.rounds == 6
    assert examine(target.case, "label-counts", UpdateAccess).reason == reason
    assert examine(target.case, "gap", QueryAccess).reason is None
    kept = tomllib.loads((folder.path / "config.toml").read_text())["training"]
    assert kept == kept | shown["training"] | {"rounds": 6}


def test_the_rates_shown_are_those_of_the_page(capsys):
    exec(compile(block("python"), "bring-your-own.md", "exec"), {})
    printed = [float(rate) for rate in re.findall(r"[\d.e-]+", capsys.readouterr().out)]
    falling = [0.0005 * (1 + math.cos(math.pi * place / 45)) for place in (0, 20, 44)]
    assert printed == pytest.approx([0.001 / 6, *falling])
