"""Fast gradient sign, its iterations and projected gradient descent: formulas, limits and bookkeeping."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from cases import question_about
from conftest import CLASSES, make_images, make_model
from evasion_models import attacked, honest
from torch import nn

from glasshouse.access import ModelAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.evasion import Problem
from glasshouse.attacks.evasion.frozen import Frozen
from glasshouse.attacks.evasion.pgd import FGSM, IFGSM, PGD
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.errors import BadInput, CannotRun
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ascent import ascend
from glasshouse.learning.evaluate import accuracy, hits

EVERY = ("fgsm", "i-fgsm", "pgd", "apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square", "strongest")
SHORT = {
    "apgd-ce": "steps=10",
    "apgd-dlr": "steps=10",
    "apgd-t": "steps=10,targets=3",
    "fab-t": "steps=10,targets=3",
    "square": "queries=30",
    "strongest": "steps=10,targets=3,queries=30",
}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def make(name, **options):
    """An attack with few steps."""
    short = [SHORT[name]] if name in SHORT else []
    return ATTACKS.make(
        f"{name}({','.join([*short, *(f'{key}={value!r}' for key, value in options.items())])})"
    )


def run(attack, model, images, seed=0):
    return attack.run(ModelAccess(model), Knowledge(images), rng(seed))


def left(model, evidence, images):
    """How many images the model still gets right within each limit."""
    return [int(hits(model, Images(x, images.y, images.classes)).sum()) for x in evidence.x]


def test_fgsm_moves_each_pixel_along_the_sign_of_its_slope_within_bounds():
    model, images = make_model().eval(), make_images(12)
    (moved,) = run(FGSM(eps=0.1), model, images).x
    x = images.x.clone().requires_grad_()
    logits = model(x)
    F.cross_entropy(logits, images.y).backward()
    expected = (images.x + 0.1 * x.grad.sign()).clamp(0, 1)
    right = logits.argmax(1) == images.y
    assert right.any()
    torch.testing.assert_close(moved[right], expected[right])
    assert torch.equal(moved[~right], images.x[~right])


def test_fgsm_is_the_first_step_of_pgd_from_the_image():
    model, images = honest("mlp"), attacked(60)
    one = run(FGSM(eps=(0.05, 0.1)), model, images)
    first = run(PGD(eps=(0.05, 0.1), steps=1, start="image"), model, images)
    assert torch.equal(one.x, first.x)


def test_the_papers_eps_and_steps_are_taken_for_grey_and_colour_images():
    grey, model = make_images(4), make_model().eval()
    colour = dataclasses.replace(grey, x=torch.rand(4, 3, 8, 8))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)).eval()

    def steps_of(attack, model, images, eps):
        problem = Problem.of(ModelAccess(model), Knowledge(images), rng())
        path = attack.path(problem, problem.within(eps, attack.norm, torch.arange(4)), 0)
        return path.steps, path.length

    assert run(FGSM(), model, grey).eps == run(PGD(), model, grey).eps == (0.3,)
    assert run(FGSM(), flat, colour).eps == run(PGD(), flat, colour).eps == (0.02,)
    assert steps_of(PGD(), model, grey, 0.3) == (40, pytest.approx(0.01))
    assert steps_of(PGD(), flat, colour, 0.02) == (20, pytest.approx(0.0025))
    assert steps_of(PGD(norm="l2", steps=10), model, grey, 1.0) == (10, pytest.approx(0.25))


@pytest.mark.parametrize("name", EVERY)
def test_eps_zero_leaves_the_images_and_the_clean_accuracy(name):
    model, images = honest("mlp"), attacked(60)
    evidence = run(make(name, eps=0.0), model, images)
    robust, clean, *_ = evidence.judge(question_about(images, model=model)).scores
    assert torch.equal(evidence.x[0], images.x)
    assert robust.estimate.value == clean.estimate.value == robust.chance == accuracy(model, images)


@pytest.mark.parametrize("name", EVERY)
def test_examples_of_every_attack_stay_within_eps_and_the_range_of_pixels(name):
    model, images = honest("mlp"), attacked(60)
    evidence = run(make(name, eps=(0.3, 0.03)), model, images)
    assert evidence.eps == (0.03, 0.3)
    assert evidence.x.min() >= 0
    assert evidence.x.max() <= 1
    for x, eps in zip(evidence.x, evidence.eps):
        assert (x - images.x).abs().max() <= eps + 1e-7


@pytest.mark.parametrize("name", ["pgd", "apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square", "strongest"])
def test_examples_in_l2_stay_within_eps_and_the_range_of_pixels(name):
    model, images = honest("mlp"), attacked(60)
    evidence = run(make(name, eps=(0.2, 1.0), norm="l2"), model, images)
    assert evidence.x.min() >= 0
    assert evidence.x.max() <= 1
    for x, eps in zip(evidence.x, evidence.eps):
        assert (x - images.x).flatten(1).norm(dim=1).max() <= eps * (1 + 1e-6)
    most, least = left(model, evidence, images)
    assert least < most
    evidence.judge(question_about(images, model=model))


@pytest.mark.parametrize("name", EVERY)
def test_no_larger_limit_leaves_more_and_wrong_images_stay_as_they_are(name):
    model, images = honest("mlp", epochs=1), attacked(100)
    evidence = run(make(name, eps=(0.02, 0.05, 0.1, 0.2)), model, images)
    counts = left(model, evidence, images)
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]
    wrong = ~hits(model, images)
    assert wrong.any()
    assert torch.equal(evidence.x[:, wrong], images.x[wrong].expand(4, -1, -1, -1, -1))


@pytest.mark.parametrize("name", EVERY)
def test_one_run_with_several_limits_gives_what_separate_runs_give(name):
    model, images = honest("mlp"), attacked(60)
    several = run(make(name, eps=(0.05, 0.1)), model, images)
    for place, eps in enumerate(several.eps):
        alone = run(make(name, eps=eps), model, images)
        before = hits(model, Images(several.x[place - 1], images.y, 10)) if place else torch.ones(60).bool()
        # A walk to the nearest example goes on where a larger limit alone would have been content with less.
        if name in ("fab-t", "strongest"):
            assert left(model, several, images)[place] == left(model, alone, images)[0]
        else:
            torch.testing.assert_close(several.x[place][before], alone.x[0][before])


@pytest.mark.parametrize("name", EVERY)
def test_an_attack_repeats_itself_and_leaves_the_model_as_it_was(name):
    model, images = make_model(), make_images(30)
    model.eval()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    first, second = (run(make(name, eps=0.1), model, images) for _ in range(2))
    assert torch.equal(first.x, second.x)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert not model.training


def test_the_size_of_chunks_changes_nothing_but_rounding(monkeypatch):
    model, images = honest("mlp"), attacked(60)
    whole = run(PGD(eps=0.05), model, images)
    monkeypatch.setattr(Frozen.__init__, "__defaults__", (7,))
    torch.testing.assert_close(run(PGD(eps=0.05), model, images).x, whole.x, atol=1e-5, rtol=0)


def test_images_that_fell_take_no_further_steps(monkeypatch):
    model, images = honest("mlp"), attacked(60)
    seen, look = [], Frozen.look
    monkeypatch.setattr(Frozen, "look", lambda self, x, *rest: seen.append(len(x)) or look(self, x, *rest))
    evidence = run(PGD(eps=0.3, start="image"), model, images)
    clean, *steps = seen
    assert clean == 60
    assert steps[0] == int(hits(model, images).sum())
    assert steps == sorted(steps, reverse=True)
    assert len(steps) < 40
    assert left(model, evidence, images) == [0]


def test_one_pass_through_the_model_serves_a_step(monkeypatch):
    passes = []
    model, images = honest("mlp", 0.1), attacked(60)
    forward = nn.Sequential.forward
    monkeypatch.setattr(nn.Sequential, "forward", lambda self, x: passes.append(len(x)) or forward(self, x))
    run(PGD(eps=0.01, steps=5, start="image"), model, images)
    # One look at the images and one more to see whether answers are steady, five steps and a last check.
    assert len(passes) == 2 + 5 + 1


def test_restarts_and_targets_only_ever_fool_more():
    model, images = honest("mlp", 0.1), attacked(150)
    once, thrice = (
        left(model, run(PGD(eps=0.1, steps=5, restarts=n), model, images), images) for n in (1, 4)
    )
    assert thrice[0] < once[0]
    one, many = (
        left(model, run(PGD(eps=0.1, steps=10, targeted=True, targets=n), model, images), images)
        for n in (1, 9)
    )
    assert many[0] <= one[0] < accuracy(model, images) * 150


def test_a_targeted_attack_ends_in_the_likeliest_wrong_class():
    model, images = honest("mlp"), attacked(60)
    evidence = run(PGD(eps=0.3, targeted=True, targets=1), model, images)
    with torch.no_grad():
        before = model(images.x)
        after = model(evidence.x[0]).argmax(1)
    likeliest = before.scatter(1, images.y[:, None], -torch.inf).argmax(1)
    moved = (before.argmax(1) == images.y) & (after != images.y)
    assert (after == likeliest)[moved].double().mean() > 0.9


@pytest.mark.parametrize(("random", "eps"), [(False, 0.1), (True, 0.1), (True, 0.05)])
def test_pgd_leaves_what_foolbox_leaves(random, eps):
    foolbox = pytest.importorskip("foolbox")
    ep = pytest.importorskip("eagerpy")
    model, images = honest("mlp", 0.1), load("digits").train[:1000]
    problem = Problem.of(ModelAccess(model), Knowledge(images), rng())
    begun = problem.random_start(problem.within(eps, "linf", torch.arange(1000)), 0)

    class SameStart(foolbox.attacks.LinfPGD):
        def get_random_start(self, x0, epsilon):
            return ep.astensor(begun)

    attack = SameStart(steps=40, random_start=random)
    _, _, fooled = attack(foolbox.PyTorchModel(model, bounds=(0, 1)), images.x, images.y, epsilons=eps)
    ours = run(PGD(eps=eps, start="random" if random else "image"), model, images)
    assert abs(left(model, ours, images)[0] - int((~fooled).sum())) <= 1


def test_ascent_moves_every_image_of_a_batch_to_a_larger_loss():
    model, images = honest("mlp"), attacked(60)
    for norm, eps in (("linf", 0.1), ("l2", 0.5)):
        for random in (True, False):
            x = ascend(
                model,
                images.x,
                images.y,
                eps=eps,
                step=eps / 4,
                steps=7,
                norm=norm,
                rng=rng(),
                start_random=random,
            )
            far = (x - images.x).flatten(1).norm(torch.inf if norm == "linf" else 2, dim=1)
            assert far.max() <= eps * (1 + 1e-6)
            losses = [F.cross_entropy(model(batch), images.y, reduction="none") for batch in (images.x, x)]
            assert (losses[1] > losses[0]).double().mean() > 0.95
    assert not images.x.requires_grad


@pytest.mark.parametrize(("spec", "message"), [
    ("fgsm(eps=2)", r"fgsm eps = 2 is out of range; it must be a number at least 0 and at most 1"),
    ("pgd(eps=(0.1, -1))", "pgd eps = -1"),
    ("pgd(eps=())", r"pgd eps = \(\)"),
    ("pgd(eps='a')", "pgd eps = 'a'"),
    ("pgd(eps=-1, norm='l2')", "eps = -1 is out of range; it must be a number at least 0$"),
    ("pgd(norm='l1')", "pgd norm = 'l1' is out of range; it must be one of linf, l2"),
    ("pgd(steps=0)", "pgd steps = 0"),
    ("pgd(step=0)", "pgd step = 0"),
    ("pgd(step=1e999)", "pgd step = inf is out of range; it must be a number above 0"),
    ("pgd(start='here')", "pgd start = 'here'"),
    ("pgd(start='image', restarts=2)", "pgd restarts = 2"),
    ("pgd(targets=0)", "pgd targets = 0"),
    ("i-fgsm(step=-1)", "i-fgsm step = -1"),
    ("apgd-ce(steps=1.5)", "apgd-ce steps = 1.5"),
    ("apgd-dlr(restarts=0)", "apgd-dlr restarts = 0"),
    ("square(queries=0)", "square queries = 0"),
    ("square(norm='l1')", "square norm = 'l1'"),
    ("apgd-t(targets=0)", "apgd-t targets = 0"),
    ("fab-t(steps=0)", "fab-t steps = 0"),
    ("strongest(queries=0)", "strongest queries = 0"),
    ("strongest(targets=0)", "strongest targets = 0"),
    ("strongest(steps=None)", "strongest steps = None"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused_in_one_line(spec, message):
    with pytest.raises(BadInput, match=message) as refused:
        ATTACKS.make(spec)
    assert "\n" not in str(refused.value)


def test_several_limits_can_be_written_in_a_specification():
    assert ATTACKS.make("pgd(eps=(0.05, 0.1, 0.3))").eps == (0.05, 0.1, 0.3)


def test_iterations_from_the_image_are_pgd_without_chance():
    model, images = honest("mlp"), attacked(60)
    evidence = [run(IFGSM(eps=0.05), model, images, seed) for seed in (0, 1)]
    assert torch.equal(evidence[0].x, evidence[1].x)
    assert torch.equal(evidence[0].x, run(PGD(eps=0.05, start="image"), model, images).x)


def test_the_curve_begins_at_the_clean_accuracy_and_has_noise_beside_it():
    model, images = honest("mlp"), attacked(100)
    evidence = run(PGD(eps=(0.0, 0.1, 0.3), steps=10), model, images)
    judgement = evidence.judge(question_about(images, model=model))
    points = judgement.exhibits.robustness
    assert [point.eps for point in points] == [0.0, 0.1, 0.3]
    assert points[0].value == points[0].chance == accuracy(model, images)
    assert [100 * point.value for point in points] == pytest.approx(left(model, evidence, images))
    for point in points:
        assert (point.norm, point.n) == ("linf", 100)
        assert point.low <= point.value <= point.high
        assert point.value <= point.chance
    robust = judgement.scores[0]
    assert (robust.estimate.value, robust.chance) == (points[-1].value, points[-1].chance)


def test_signs_and_hidden_images_reach_the_scores():
    model, images = honest("mlp"), attacked(10)
    hidden = torch.arange(10) < 3
    evidence = AdversarialExamples(images.x[None], (0.1,), "linf", ("one", "two"), hidden)
    robust, _, masked = evidence.judge(question_about(images, model=model)).scores
    assert robust.estimate.note == "one; two"
    otherwise = dataclasses.replace(evidence, notes=("something else ran",))
    noted, *_ = otherwise.judge(question_about(images, model=model)).scores
    assert noted.estimate.note == "something else ran; one; two"
    assert (masked.metric, masked.estimate.value, masked.chance) == ("masked-share", 0.3, 0.0)


def test_examples_that_move_too_far_in_l2_are_not_scored():
    model, images = honest("mlp"), attacked(4)
    further = (images.x + 0.05).clamp(0, 1)[None]
    with pytest.raises(CannotRun, match=r"moved an image by .*, more than its eps = 0\.1"):
        AdversarialExamples(further, (0.1,), "l2").judge(question_about(images, model=model))


@pytest.mark.parametrize("name", EVERY)
def test_a_model_whose_answers_are_no_numbers_has_no_robust_accuracy(name):
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Linear(10, 10)).eval(), attacked(20)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e30)  # finite weights, but the answers overflow
    evidence = run(make(name, eps=0.1), model, images)
    with pytest.raises(CannotRun, match="not finite"):
        evidence.judge(question_about(images, model=model))


def test_the_judge_looks_once_at_the_images_and_twice_for_each_limit():
    model, images = honest("mlp"), attacked(60)
    evidence = run(PGD(eps=(0.05, 0.1, 0.2), steps=2), model, images)
    passes = []
    hook = model.register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0])))
    judgement = evidence.judge(question_about(images, model=model))
    hook.remove()
    # The images as they are, and within each limit what the attack made of them and noise of that size.
    assert passes == [60] * 7
    assert len(judgement.exhibits.robustness) == 4
    assert judgement.outcomes.keys() == {0.0, 0.05, 0.1, 0.2}
