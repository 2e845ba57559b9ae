"""APGD, Square and the strongest check: their parts against the papers, their strength against PGD."""

import pytest
import torch
from conftest import make_images, make_plain_model
from evasion_models import Quantised, attacked, honest
from torch import nn

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.apgd import APGDCE, APGDDLR, checkpoints
from glasshouse.attacks.evasion.frozen import Frozen, dlr, fooled
from glasshouse.attacks.evasion.pgd import FGSM, PGD
from glasshouse.attacks.evasion.square import Square, side
from glasshouse.attacks.evasion.strongest import Strongest
from glasshouse.data.images import Images
from glasshouse.learning.ball import Ball
from glasshouse.learning.evaluate import hits

MODELS = [("mlp", 0.0), ("mlp", 0.1), ("lenet", 0.0), ("lenet", 0.1), ("stdcnn", 0.0)]


def run(attack, model, images, seed=0):
    return attack.run(ModelAccess(model), Knowledge(images), torch.Generator().manual_seed(seed))


def survivors(attack, model, images):
    """Who is still right within each limit, bool of shape (E, N)."""
    evidence = run(attack, model, images)
    return torch.stack([hits(model, Images(x, images.y, images.classes)) for x in evidence.x])


@pytest.mark.parametrize(("network", "adversarial"), MODELS)
@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.6)])
def test_apgd_is_never_weaker_than_pgd_with_as_many_steps(network, adversarial, norm, eps):
    model, images = honest(network, adversarial), attacked(300)
    climbed = survivors(PGD(eps=eps, norm=norm, steps=40), model, images).sum()
    adapted = survivors(APGDCE(eps=eps, norm=norm, steps=40), model, images).sum()
    assert adapted <= climbed


@pytest.mark.parametrize(("network", "adversarial"), MODELS)
def test_the_strongest_check_leaves_no_image_that_pgd_or_one_step_fools(network, adversarial):
    model, images = honest(network, adversarial), attacked(150)
    limits = (0.03, 0.1)
    left = survivors(Strongest(eps=limits, steps=20, queries=50), model, images)
    for weaker in (PGD(eps=limits, steps=20), FGSM(eps=limits)):
        assert not (left & ~survivors(weaker, model, images)).any()


def test_the_strongest_check_is_never_weaker_than_the_default_pgd():
    model, images = honest("mlp", 0.1), attacked(150)
    left = survivors(Strongest(eps=0.1, queries=50), model, images)
    assert not (left & ~survivors(PGD(eps=0.1), model, images)).any()


def test_checkpoints_are_those_of_the_paper():
    # p = 0, 0.22, then p + max(p - p_before - 0.03, 0.06): 0.41, 0.57, 0.70, 0.80, 0.87, 0.93, 0.99.
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(1) == [1]


def test_the_ratio_of_differences_ignores_scale_and_shift_and_is_positive_for_the_fooled():
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(50) % 6
    losses = dlr(logits, y)
    torch.testing.assert_close(dlr(1e4 * logits - 7, y), losses)
    assert torch.equal(losses > 0, logits.argmax(1) != y)
    own, rest = logits[0, 0], logits[0, 1:]
    ordered = logits[0].sort(descending=True).values
    assert losses[0] == pytest.approx(float((rest.max() - own) / (ordered[0] - ordered[2])))


def test_two_classes_are_attacked_by_their_margin():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).eval()
    images = make_images(40)
    with torch.no_grad():
        images = Images(images.x, model(images.x).argmax(1), 2)
    # A linear model is fooled exactly where eps times the sum of |w1 - w0| over free pixels beats the margin.
    weight = model[1].weight[1] - model[1].weight[0]
    sign = 1 - 2 * images.y[:, None].float()
    furthest = (images.x + 0.02 * (sign * weight).sign().view(40, 1, 8, 8)).clamp(0, 1)
    with torch.no_grad():
        expected = model(furthest).argmax(1) == images.y
    assert 0 < expected.sum() < 40
    for attack in (APGDDLR(eps=0.02), APGDCE(eps=0.02)):
        assert torch.equal(survivors(attack, model, images)[0], expected)


@pytest.mark.parametrize("attack", [APGDCE, APGDDLR])
def test_more_restarts_of_apgd_only_ever_fool_more(attack):
    model, images = honest("mlp", 0.1), attacked(150)
    once, thrice = (survivors(attack(eps=0.1, steps=2, restarts=n), model, images) for n in (1, 3))
    assert not (thrice & ~once).any()
    assert thrice.sum() < once.sum()


def test_square_needs_no_gradient():
    model, images = Quantised(honest("mlp")).eval(), attacked(100)
    left = survivors(Square(eps=0.3, queries=200), model, images)
    assert left.sum() < 0.2 * survivors(PGD(eps=0.3), model, images).sum()


def test_square_gets_better_with_more_queries_and_restarts():
    model, images = honest("mlp", 0.1), attacked(100)
    few, many = (survivors(Square(eps=0.1, queries=n), model, images).sum() for n in (5, 300))
    assert many < few
    once, again = (survivors(Square(eps=0.1, queries=20, restarts=n), model, images) for n in (1, 3))
    assert not (again & ~once).any()


def test_squares_shrink_to_a_pixel_and_never_exceed_the_image():
    ball = Ball(torch.zeros(1, 1, 8, 8), 0.1)
    sides = [side(query, 1000, ball) for query in range(1, 1001)]
    assert sides[0] == 7  # the root of 0.8 * 64
    assert sides[-1] == 1
    assert sides == sorted(sides, reverse=True)
    assert side(1, 1000, Ball(torch.zeros(1, 1, 2, 50), 0.1)) == 2


def test_colour_images_are_attacked_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).eval()
    x = torch.rand(40, 3, 8, 8)
    with torch.no_grad():
        images = Images(x, model(x).argmax(1), 5)
    for attack in (
        PGD(),
        APGDCE(steps=10),
        APGDDLR(steps=10),
        Square(queries=50),
        Strongest(steps=5, queries=9),
    ):
        left = survivors(attack, model, images)
        assert left.sum() < 40
        assert run(attack, model, images).eps == (0.02,)


def test_an_image_counts_as_fooled_only_where_rounding_cannot_undo_it():
    y = torch.tensor([0, 0, 0])
    logits = torch.tensor([[1.0, 1.0 + 1e-7], [1.0, 1.1], [1.1, 1.0]])
    assert fooled(logits, y).tolist() == [False, True, False]


def test_a_frozen_copy_answers_as_the_model_does():
    model, images = make_plain_model().eval(), make_images(20)
    with torch.no_grad():
        torch.testing.assert_close(Frozen(model, chunk=3).answers(images.x), model(images.x))
