"""Models that hide their gradients are flagged, with the reason; honest ones are not."""

import pytest
import torch
from evasion_models import Noisy, Quantised, Scaled, Shattered, Steep, attacked, honest

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.evasion import Problem
from glasshouse.attacks.evasion.masking import PairedCounts, compared, stalled, unbroken
from glasshouse.attacks.evasion.pgd import FGSM, PGD
from glasshouse.attacks.evasion.strongest import Attempts, Search, Strongest
from glasshouse.data.images import Images
from glasshouse.learning.evaluate import accuracy

LIMITS = (0.05, 0.1, 0.3)


def run(attack, model, images):
    return attack.run(ModelAccess(model), Knowledge(images), torch.Generator().manual_seed(0))


def right(model, evidence, images):
    return accuracy(model, Images(evidence.x[-1], images.y, images.classes))


@pytest.mark.parametrize(
    ("network", "adversarial"), [("mlp", 0.0), ("mlp", 0.1), ("lenet", 0.0), ("lenet", 0.1)]
)
@pytest.mark.parametrize("eps", [0.1, LIMITS])
def test_honest_models_are_not_flagged(network, adversarial, eps):
    model, images = honest(network, adversarial), attacked(200)
    assert run(Strongest(eps=eps, steps=40, targets=3, queries=100), model, images).signs == ()
    assert run(PGD(eps=eps), model, images).signs == ()


@pytest.mark.parametrize(("hide", "reason", "cheap"), [
    (Scaled, "exactly zero", True),
    (Quantised, "fall only to attacks without gradients", True),
    (Steep, "uniform grey", True),
    (Noisy, "differently when asked again", True),
    (Shattered, "fall only to attacks without gradients", False),
])  # fmt: skip
def test_models_that_hide_their_gradients_are_flagged_with_the_reason(hide, reason, cheap):
    model, images = hide(honest("mlp")).eval(), attacked(200)
    evidence = run(Strongest(eps=LIMITS, targets=2, queries=200), model, images)
    assert any(reason in sign for sign in evidence.signs)
    assert bool(run(PGD(eps=LIMITS), model, images).signs) == cheap


def test_a_single_step_gives_no_signs_as_nobody_takes_it_for_robustness():
    model, images = Quantised(honest("mlp")).eval(), attacked(50)
    assert run(PGD(eps=0.1, steps=2), model, images).signs
    assert run(FGSM(eps=0.1), model, images).signs == ()


@pytest.mark.parametrize("hide", [Scaled, Quantised, Steep, Shattered])
def test_the_strongest_check_sees_through_what_pgd_takes_for_robustness(hide):
    model, images = hide(honest("mlp")).eval(), attacked(200)
    assert right(model, run(PGD(eps=0.3), model, images), images) > 0.6
    assert right(model, run(Strongest(eps=0.3, targets=2, queries=200), model, images), images) < 0.2


def test_hidden_images_are_those_that_gradients_do_not_fool_within_the_largest_limit():
    model, images = Quantised(honest("mlp")).eval(), attacked(100)
    evidence = run(Strongest(eps=(0.1, 0.3), steps=20, queries=100), model, images)
    assert evidence.hidden.sum() > 50
    with torch.no_grad():
        assert (model(evidence.x[-1]).argmax(1) != images.y)[evidence.hidden].all()
        assert (model(images.x).argmax(1) == images.y)[evidence.hidden].all()
    assert not run(Strongest(eps=0.3, steps=20, queries=100), honest("mlp"), images).hidden.any()


def test_a_lucky_image_or_two_are_no_sign():
    nobody = torch.zeros(200, dtype=torch.bool)
    assert compared(PairedCounts(2, 0), PairedCounts(1, 0), torch.arange(200) < 2) == []
    assert len(compared(PairedCounts(30, 10), PairedCounts(0, 0), nobody)) == 1
    assert len(compared(PairedCounts(0, 0), PairedCounts(30, 10), nobody)) == 1
    assert len(compared(PairedCounts(0, 0), PairedCounts(0, 0), torch.arange(200) < 20)) == 1


def test_an_image_that_noise_fools_within_several_limits_counts_once():
    def nobody(originals):
        return originals.ball.centre.clone(), torch.zeros(len(originals.y), dtype=torch.bool)

    def everybody(originals):
        return originals.ball.centre.clone(), torch.ones(len(originals.y), dtype=torch.bool)

    model, images = honest("mlp"), attacked(8)
    problem = Problem.of(ModelAccess(model), Knowledge(images), torch.Generator())
    search = Search(problem, "linf")
    for eps in LIMITS:
        search.widen(eps, Attempts(nobody, nobody, nobody, everybody))
    assert (search.noise.first, search.noise.second) == (int((~problem.wrong).sum()), 0)
    assert search.noise.first > 0


def test_a_curve_that_stops_falling_is_a_sign():
    counts = torch.tensor([[20], [21], [21]])
    fell = torch.arange(100) < counts
    assert "eps 0.1 fools hardly more images than 0.05" in stalled((0.05, 0.1, 0.3), fell)[0]
    assert stalled((0.05, 0.06), fell[:2]) == []
    assert stalled((0.05, 0.1), torch.arange(100) < torch.tensor([[20], [50]])) == []
    assert stalled((0.05, 0.1), torch.arange(100) < torch.tensor([[95], [96]])) == []


def test_a_limit_that_reaches_grey_must_leave_no_more_than_one_class():
    y = torch.arange(100) % 10
    assert unbroken(10, y, 0.5) == []
    assert "leave 40 of 100 right" in unbroken(40, y, 0.5)[0]
