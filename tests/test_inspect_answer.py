"""What `inspect` answers: which attempt counts, what is proven, and how it says so."""

import re

import pytest
import torch
from recorded_updates import CLASSES, SHAPE, batch, perceptron, record
from safetensors.torch import load_file, save_file
from torch import nn

from glasshouse import inspect_update
from glasshouse.access import UpdateAccess
from glasshouse.auditing.examine import Examination
from glasshouse.auditing.inspecting.tries import Try, best, most_convincing
from glasshouse.evidence.evidence import Judgement, Score
from glasshouse.evidence.reconstruction import Rebuilt
from glasshouse.measures.estimate import Estimate


def quiet_neurons():
    """A perceptron of which few neurons fire, most of them for a single image."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 300), nn.ReLU(), nn.Linear(300, 24), nn.ReLU(), nn.Linear(24, CLASSES)
    )
    with torch.no_grad():
        network[1].bias -= 0.6
    return network


def without_bias():
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(16, 40, bias=False), nn.Sigmoid(), nn.Linear(40, CLASSES)
    return nn.Sequential(*layers)


def inspected(folder, network, labels, kind="gradient", *, known=False, **options):
    """What is found out about an update of `network`; with the truth where it is `known`."""
    x, y = batch(labels)
    before, update = record(folder, network, x, y, kind)
    told = {"classes": CLASSES, "seconds": 0.4, "out": folder / "run", "workers": 1, "quiet": True}
    told |= {"truth": (x.numpy(), y.numpy())} if known else {"shape": SHAPE}
    return inspect_update(update, before, network, **told | options)


LABELS = [place % CLASSES for place in range(20)]


def test_some_images_that_are_proven_count_more_than_a_search_that_finds_none(tmp_path):
    seen = inspected(tmp_path, quiet_neurons(), LABELS, samples=20)
    count = re.match(r"EXPOSED: linear-leak returns (\d+) of 20 images, and proves", seen.statement.answer)
    assert count
    assert 2 <= int(count[1]) < 20
    assert f"linear-leak computes {count[1]} images (proven)." in " ".join(seen.statement.found)


def test_with_the_truth_the_answer_is_that_of_the_attack_that_recovers_most(tmp_path):
    seen = inspected(tmp_path, quiet_neurons(), LABELS, known=True)
    rates = {row.attack: row.value for row in seen.findings if row.metric == "recovery-rate"}
    recovered = round(20 * rates["linear-leak"])
    assert 2 <= recovered < 20
    assert seen.statement.answer.startswith(f"EXPOSED: {recovered} of 20 images were rebuilt")
    assert "by linear-leak" in seen.statement.answer


@pytest.mark.parametrize("scale", [1.0, 1e-38])
def test_an_image_behind_a_smooth_perceptron_is_an_image_however_small_its_gradient(tmp_path, scale):
    network, (x, y) = without_bias(), batch([2])
    before, update = record(tmp_path, network, x, y, "gradient")
    save_file({name: tensor * scale for name, tensor in load_file(update).items()}, update)
    seen = inspect_update(
        update,
        before,
        network,
        classes=CLASSES,
        truth=(x.numpy(), y.numpy()),
        kind="gradient",
        seconds=0.4,
        out=tmp_path / "run",
        workers=1,
        quiet=True,
    )
    values = {row.metric: row.value for row in seen.findings if row.attack == "r-gap"}
    assert values["psnr"] is not None
    if scale == 1:
        assert values["psnr"] > 40
        assert seen.statement.answer.startswith("EXPOSED: 1 of 1 images")


def test_one_image_is_spoken_of_as_one(tmp_path):
    seen = inspected(tmp_path, perceptron(), [3])
    assert re.match(
        r"EXPOSED: \S+ returns the image; passed through the network, it gives", seen.statement.answer
    )
    assert "linear-leak computes 1 image (mismatch" in " ".join(seen.statement.found)


def test_a_closed_form_without_an_image_is_not_said_to_apply(tmp_path):
    torch.manual_seed(0)
    two_layers = nn.Sequential(nn.Flatten(), nn.Linear(16, 30), nn.Sigmoid(), nn.Linear(30, CLASSES))
    words = " ".join(inspected(tmp_path, two_layers, [0, 1, 2], samples=3).statement.found)
    assert "A closed form applies" not in words
    assert "No closed form returns an image" in words


def attempt(spec, images, *, proven=False, mismatch=None, truth=None):
    """An attempt at 4 images; `truth` are its recovery rate and PSNR."""
    judgement = None
    if truth is not None:
        scores = zip(("recovery-rate", "psnr"), truth)
        judgement = Judgement(
            tuple(Score(metric, Estimate(value, None, None, 4)) for metric, value in scores)
        )
    examination = Examination(None, spec, UpdateAccess, "reconstruction", judgement=judgement)
    rebuilt = Rebuilt(torch.zeros(images, *SHAPE), (0,), proven=proven)
    return Try(examination, 4, rebuilt, mismatch, None if mismatch is None else 1.0)


def test_without_the_truth_what_is_complete_comes_first_and_then_what_is_proven():
    in_order = [
        attempt("dlg", 4, mismatch=1e-6),
        attempt("linear-leak", 1, proven=True),
        attempt("swift-inversion", 4, mismatch=0.1),
        attempt("spear", 3),
        attempt("dlg", 4, mismatch=0.6),
        attempt("dlg", 4, mismatch=0.8),
        attempt("linear-leak", 0, proven=True),
    ]
    for place, expected in enumerate(in_order):
        assert most_convincing(in_order[place:][::-1]) is expected
    assert best(in_order[-1:]) is None


def test_the_truth_chooses_between_attacks_but_not_between_the_starts_of_one():
    convincing = attempt("dlg", 4, mismatch=0.5, truth=(0.25, 15.0))
    lucky = attempt("dlg", 4, mismatch=0.9, truth=(1.0, 30.0))
    partly = attempt("linear-leak", 2, truth=(0.5, 14.0), proven=True)
    blurred = attempt("r-gap", 4, mismatch=0.1, truth=(0.5, 13.0))
    nothing = attempt("spear", 0, truth=(0.0, 40.0))
    assert best([lucky, convincing, nothing]) is convincing
    assert best([lucky, blurred, convincing, partly]) is partly
