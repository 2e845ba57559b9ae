"""APGD, FAB, Square and their ensemble: their parts against the papers, their strength against others'."""

import dataclasses
import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from cases import question_about
from conftest import make_images, make_plain_model
from evasion_models import Quantised, attacked, honest
from scipy.optimize import linprog, minimize
from torch import nn

from glasshouse.access import ModelAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.apgd import APGDCE, APGDDLR, APGDT, checkpoints
from glasshouse.attacks.evasion.evasion import Problem
from glasshouse.attacks.evasion.fab import FABT, way_to_plane
from glasshouse.attacks.evasion.frozen import Frozen, dlr, fooled, targeted_dlr
from glasshouse.attacks.evasion.pgd import PGD
from glasshouse.attacks.evasion.square import Square, bumps, odd_side, share, side
from glasshouse.attacks.evasion.strongest import Strongest
from glasshouse.data.images import Images
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


def test_without_options_the_strongest_check_is_the_standard_ensemble():
    assert Strongest().members() == (
        APGDCE(steps=100, restarts=1),
        APGDT(steps=100, restarts=1, targets=9),
        FABT(steps=100, targets=9),
        Square(queries=5000, restarts=1),
    )
    assert {member.norm for member in Strongest(norm="l2").members()} == {"l2"}


@pytest.mark.parametrize(("network", "adversarial"), MODELS)
@pytest.mark.parametrize(("norm", "limits"), [("linf", (0.03, 0.1)), ("l2", (0.3, 0.8))])
def test_the_strongest_check_leaves_no_image_that_a_member_alone_fools(network, adversarial, norm, limits):
    model, images = honest(network, adversarial), attacked(60)
    budget = {"eps": limits, "norm": norm}
    check = Strongest(**budget, steps=10, targets=3, queries=50)
    left = survivors(check, model, images)
    for member in (
        APGDCE(**budget, steps=10),
        APGDT(**budget, steps=10, targets=3),
        FABT(**budget, steps=10, targets=3),
        Square(**budget, queries=50),
    ):
        assert not (left & ~survivors(member, model, images)).any()


def test_the_strongest_check_leaves_no_more_than_pgd_does():
    model, images = honest("mlp", 0.1), attacked(150)
    left = survivors(Strongest(eps=0.1, steps=20, queries=50), model, images)
    assert left.sum() <= survivors(PGD(eps=0.1), model, images).sum()


@pytest.mark.extras
@pytest.mark.parametrize(("network", "adversarial"), [("mlp", 0.1), ("lenet", 0.0)])
@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.6)])
def test_the_ensemble_and_its_members_leave_what_a_public_implementation_leaves(
    network, adversarial, norm, eps
):
    theirs = pytest.importorskip("torchattacks")
    model, images = honest(network, adversarial), attacked(100)
    named = {"norm": {"linf": "Linf", "l2": "L2"}[norm], "eps": eps}
    # Its own bundle takes ten steps, so the members are put together here.
    members = [
        theirs.APGD(model, **named, steps=20, loss="ce"),
        theirs.APGDT(model, **named, steps=20),
        theirs.FAB(model, **named, steps=20, multi_targeted=True),
        theirs.Square(model, **named, n_queries=100),
    ]
    ours = Strongest(eps=eps, norm=norm, steps=20, queries=100)

    def left(attack):
        return hits(model, Images(attack(images.x, images.y).detach().clamp(0, 1), images.y, 10))

    assert (survivors(ours, model, images)[0] != left(theirs.MultiAttack(members))).sum() <= 1
    for member, reference, most in zip(ours.members()[:3], members, (3, 2, 1)):
        within = type(member)(**{**vars(member), "eps": eps})
        assert (survivors(within, model, images)[0] != left(reference)).sum() <= most


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


def test_the_targeted_ratio_ignores_scale_and_shift_and_is_that_of_the_paper():
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).double()
    pairs = torch.stack([torch.arange(50) % 6, (torch.arange(50) + 2) % 6], 1)
    losses = targeted_dlr(logits, pairs)
    torch.testing.assert_close(targeted_dlr(1e4 * logits - 7, pairs), losses)
    first, _, third, fourth, *_ = logits[0].sort(descending=True).values.tolist()
    expected = -(logits[0, 0] - logits[0, 2]).item() / (first - (third + fourth) / 2)
    assert losses[0].item() == pytest.approx(expected)


def linear_model(classes):
    """A linear model of that many classes, and images that it gets right."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, classes)).eval()
    images = make_images(40)
    with torch.no_grad():
        return model, Images(images.x, model(images.x).argmax(1), classes)


@pytest.mark.parametrize(("attack", "needed"), [("apgd-dlr", 3), ("apgd-t", 4), ("strongest", 4)])
def test_a_finding_says_what_ran_where_there_are_too_few_classes_for_the_ratio(attack, needed):
    for classes in (2, 3, 4):
        model, images = linear_model(classes)
        short = {"apgd-dlr": "", "apgd-t": "", "strongest": ",queries=9"}[attack]
        evidence = run(ATTACKS.make(f"{attack}(eps=0.02,steps=5{short})"), model, images)
        name = "apgd-t" if attack == "strongest" else attack
        assert evidence.notes == (() if classes >= needed else (
            f"{name} climbed the difference of logits alone: with {classes} classes its ratio of "
            f"differences, which needs {needed}, does not exist",
        ))  # fmt: skip
        robust, *_ = evidence.judge(question_about(images, model=model)).scores
        assert robust.estimate.note == (evidence.notes[0] if evidence.notes else None)


def test_two_classes_are_attacked_by_their_margin():
    model, images = linear_model(2)
    # A linear model is fooled exactly where eps times the sum of |w1 - w0| over free pixels beats the margin.
    weight = model[1].weight[1] - model[1].weight[0]
    sign = 1 - 2 * images.y[:, None].float()
    furthest = (images.x + 0.02 * (sign * weight).sign().view(40, 1, 8, 8)).clamp(0, 1)
    with torch.no_grad():
        expected = model(furthest).argmax(1) == images.y
    assert 0 < expected.sum() < 40
    for attack in (APGDDLR(eps=0.02), APGDCE(eps=0.02), APGDT(eps=0.02), FABT(eps=0.02)):
        assert torch.equal(survivors(attack, model, images)[0], expected)


@pytest.mark.parametrize("attack", [APGDCE, APGDDLR, APGDT])
def test_more_restarts_of_apgd_only_ever_fool_more(attack):
    model, images = honest("mlp", 0.1), attacked(150)
    once, often = (survivors(attack(eps=0.1, steps=1, restarts=n), model, images) for n in (1, 6))
    assert not (often & ~once).any()
    assert often.sum() < once.sum()


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
    small, flat = torch.Size((1, 1, 8, 8)), torch.Size((1, 1, 2, 50))
    sides = [side(share(query, 1000), small) for query in range(1, 1001)]
    assert sides[0] == 7  # the root of 0.8 * 64
    assert sides[-1] == 1
    assert sides == sorted(sides, reverse=True)
    assert side(0.8, flat) == odd_side(0.8, flat) == 2
    assert {odd_side(share(query, 1000), small) for query in range(1, 1001)} == {7, 5, 3}


def test_the_share_that_squares_cover_is_halved_as_the_paper_says():
    # Of 10,000 queries: the last of each share, from 0.8 on.
    last = [10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000, 10_000]
    for halvings, query in enumerate(last):
        assert share(query, 10_000) == share(query // 2, 5000) == 0.8 / 2**halvings
        if query < 10_000:
            assert share(query + 1, 10_000) == 0.8 / 2 ** (halvings + 1)


def test_bumps_are_heaps_of_squares_of_opposite_sign():
    both = bumps(7)
    assert both.norm().item() == pytest.approx(1)
    upper, lower = both[:3], both[3:]
    assert (upper > 0).all()
    assert (lower < 0).all()
    # Three rings lie around the middle of 7 columns: 1 + 1/4 + 1/9 + 1/16 in it, 1/16 at the ends.
    heights = [sum(k**-2 for k in range(ring, 5)) for ring in (4, 3, 2, 1, 2, 3, 4)]
    torch.testing.assert_close(upper[1] / upper[1, 3], torch.tensor(heights) / heights[3])


def test_squares_in_l2_use_all_of_the_limit_where_pixels_have_room():
    problem = Problem.of(ModelAccess(honest("mlp")), Knowledge(attacked(20)), torch.Generator())
    grey = Images(torch.full((20, 1, 8, 8), 0.5), problem.images.y, 10)
    originals = dataclasses.replace(problem, images=grey).within(0.4, "l2", torch.arange(20))
    path = Square(norm="l2", queries=50).path(problem, originals, 0)
    for number in range(50):
        torch.testing.assert_close(originals.ball.distances(path.x), torch.full((20,), 0.4))
        path.look(problem.model, number)
        path.step(number)


def shortest(x, slope, gain, norm):
    """The length of the shortest d with d . slope = gain and x + d in [0, 1], by a solver; null if none."""
    size, bounds = len(x), [*zip(-x, 1 - x)]
    if norm == "linf":
        sides = np.block([[np.eye(size), -np.ones((size, 1))], [-np.eye(size), -np.ones((size, 1))]])
        found = linprog(
            np.r_[np.zeros(size), 1],
            A_ub=sides,
            b_ub=np.zeros(2 * size),
            A_eq=np.r_[slope, 0][None],
            b_eq=[gain],
            bounds=[*bounds, (0, None)],
        )
        return found.fun if found.success else None
    plane = {"type": "eq", "fun": lambda d: slope @ d - gain, "jac": lambda d: slope}
    found = minimize(
        lambda d: d @ d,
        np.zeros(size),
        jac=lambda d: 2 * d,
        bounds=bounds,
        constraints=plane,
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    return math.sqrt(found.fun) if found.success else None


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_way_to_a_plane_is_the_shortest_that_stays_among_images(norm):
    rng = torch.Generator().manual_seed(0)
    x, slope = torch.rand(40, 1, 3, 4, generator=rng), torch.randn(40, 1, 3, 4, generator=rng)
    slope[::4, :, 0] = 0  # pixels that nothing depends on
    x[1::4, :, 1] = 1.0  # pixels without room on one side
    gain = 1.5 * torch.randn(40, generator=rng)
    way = way_to_plane(x, slope, gain, norm)
    moved = x + way
    assert moved.min() > -1e-6
    assert moved.max() < 1 + 1e-6
    lengths = way.flatten(1).norm(torch.inf if norm == "linf" else 2, dim=1)
    for place in range(40):
        best = shortest(
            *(part[place].flatten().double().numpy() for part in (x, slope)), gain[place].item(), norm
        )
        assert best is not None
        assert lengths[place].item() == pytest.approx(best, abs=1e-5)
        assert (way[place] * slope[place]).sum().item() == pytest.approx(gain[place].item(), abs=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_plane_beyond_all_images_is_approached_as_far_as_pixels_go_and_a_flat_one_not_at_all(norm):
    x, slope = torch.full((2, 1, 1, 2), 0.25), torch.tensor([[1.0, -2.0], [0.0, 0.0]]).view(2, 1, 1, 2)
    way = way_to_plane(x, slope, torch.tensor([100.0, 1.0]), norm)
    assert way.flatten().tolist() == [0.75, -0.25, 0.0, 0.0]


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
def test_the_nearest_example_of_a_linear_model_is_as_far_as_its_boundary(norm, dual):
    model, _ = linear_model(3)
    # In the middle of all images no pixel runs out of room.
    x = 0.5 + 0.02 * torch.randn(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(x)
        images = Images(x, logits.argmax(1), 3)
        weight = model[1].weight
    lead = logits.gather(1, images.y[:, None]) - logits
    slope = (weight[images.y][:, None] - weight).norm(dual, dim=2)
    boundary = torch.where(slope > 0, lead / slope, torch.inf).amin(1)
    # 5% beyond the boundary is where a step ends.
    for eps, expected in (
        (1.051 * boundary.max().item(), torch.zeros(30, dtype=torch.bool)),
        (0.999 * boundary.min().item(), torch.ones(30, dtype=torch.bool)),
    ):
        assert torch.equal(survivors(FABT(eps=eps, norm=norm, steps=20), model, images)[0], expected)


def test_several_limits_of_fab_cost_no_more_than_the_smallest(monkeypatch):
    model, images = honest("mlp", 0.1), attacked(60)
    looks, look = [], Frozen.look
    monkeypatch.setattr(Frozen, "look", lambda self, x, *rest: looks.append(len(x)) or look(self, x, *rest))
    run(FABT(eps=0.02, steps=5, targets=2), model, images)
    once = sum(looks)
    looks.clear()
    run(FABT(eps=(0.02, 0.05, 0.1), steps=5, targets=2), model, images)
    assert sum(looks) == once


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.05), ("l2", 0.5)])
def test_apgd_takes_the_steps_of_the_papers_algorithm(norm, eps):
    # In double precision: rounding would otherwise grow over the steps until it decides at a checkpoint.
    model, images = deepcopy(honest("mlp", 0.1)).double(), attacked(30)
    images = Images(images.x.double(), images.y, images.classes)
    problem = Problem.of(ModelAccess(model), Knowledge(images), torch.Generator())
    attack = APGDCE(eps=eps, norm=norm, steps=30)
    originals = problem.within(eps, norm, (~problem.wrong).nonzero().flatten())
    start = problem.random_start(originals, 0)
    path = attack.path(problem, originals, 0)
    taken = []
    for number in range(30):
        path.look(problem.model, number)
        path.step(number)
        taken.append(path.x.clone())
    for place in range(5):
        walk = reference_apgd(
            model, originals.ball.centre[place], originals.y[place], start[place], eps, norm, 30
        )
        for ours, theirs in zip(taken, walk):
            torch.testing.assert_close(ours[place], theirs, atol=1e-4, rtol=0)


def reference_apgd(model, image, label, x, eps, norm, steps):
    """Algorithm 1 of Croce and Hein (2020) for one image, with its momentum gone where it goes back."""

    def loss_and_slope(at):
        at = at.clone().requires_grad_()
        loss = nn.functional.cross_entropy(model(at[None]), label[None])
        return loss.item(), torch.autograd.grad(loss, at)[0]

    def project(at):
        if norm == "linf":
            return torch.minimum(torch.maximum(at, image - eps), image + eps).clamp(0, 1)
        moved = at - image
        return (image + moved * min(1.0, eps / max(moved.norm().item(), 1e-30))).clamp(0, 1)

    def direction(slope):
        return slope.sign() if norm == "linf" else slope / slope.norm()

    marks, size, before = checkpoints(steps), 2 * eps, x
    loss, slope = loss_and_slope(x)
    best, best_x, best_slope = loss, x, slope
    last_mark, rises, size_then, best_then = 0, 0, size, best
    for step in range(steps):
        if step in marks:
            rare = rises < 0.75 * (step - last_mark)
            stuck = size == size_then and best == best_then
            size_then, best_then, last_mark, rises = size, best, step, 0
            if rare or stuck:
                size, x, loss, slope, before = size / 2, best_x, best, best_slope, best_x
        aim = project(x + size * direction(slope))
        share = 0.75 if step else 1.0
        before, x = x, project(x + share * (aim - x) + (1 - share) * (x - before))
        yield x
        new, slope = loss_and_slope(x)
        rises += new > loss
        loss = new
        if loss > best:
            best, best_x, best_slope = loss, x, slope


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
        APGDT(steps=10, targets=2),
        FABT(steps=10, targets=2),
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
