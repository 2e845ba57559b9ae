"""The constants of our head are chosen on auxiliary images: no image that a victim may hold is read."""

import sys
from pathlib import Path

import pytest
import torch

from glasshouse.attacks.crafted import peeling, reading, sorting
from glasshouse.attacks.crafted.surrogate import Schooling
from glasshouse.data.dataset import Dataset
from glasshouse.data.sources import load
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.studies.scale_mia.scenarios import RoundPlan, Scenario, cases, divided
from glasshouse.studies.study import Workplace

SCENARIO = Scenario("mlp", "digits", Schooling(steps=1, batch_size=8, lr=1e-3))


@pytest.fixture
def choosing(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import scale_mia_constants

    yield scale_mia_constants
    sys.modules.pop("scale_mia_constants")


def named(images):
    return {tuple(image.flatten().tolist()) for image in images.x}


def test_the_constants_are_rehearsed_without_any_image_that_a_victim_may_hold(choosing, tmp_path):
    images = load("digits").train
    dataset = Dataset("digits", images[:1200], images[1200:])
    _, _, victims = divided(dataset, SCENARIO, seed=0)
    prepared = choosing.rehearsal(dataset, SCENARIO)
    seen, held = named(prepared.auxiliary), named(prepared.victims)
    assert named(victims) == named(dataset.test)
    assert seen | held <= named(dataset.train)
    assert not seen & held
    assert not (seen | held) & named(victims)
    with Engine(1) as engine:
        place = Workplace(engine, 0, tmp_path, tmp_path, Progress(quiet=True))
        rate = choosing.recovery(prepared, "scale-mia-coded", RoundPlan(16, 32, 2), place)
        rounds = cases(prepared, RoundPlan(16, 32, 2), place)
    assert rate.n == 32
    assert rate.value > 0.5
    assert {tuple(x.flatten().tolist()) for case in rounds for x in case.truth.pool.x} <= held
    assert torch.equal(prepared.surrogate.latents, prepared.auxiliary.x.flatten(1))


def test_the_values_in_use_are_among_those_that_are_tried(choosing):
    chosen = {
        "spread": sorting.HEAVIEST,
        "opposite": sorting.LIGHTEST,
        "tolerance": reading.TOLERANCE,
        "load": peeling.LOAD,
    }
    for name, value in chosen.items():
        assert value in choosing.CONSTANTS[name].values, name
