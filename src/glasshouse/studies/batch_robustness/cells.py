"""What is measured of each model: accuracy, clean and attacked, and curvature in weights and in pixels."""

import time
import zlib
from collections.abc import Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import nn

from glasshouse.access import ModelAccess
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import examine
from glasshouse.data.images import Images
from glasshouse.findings import Finding, Subject
from glasshouse.learning.evaluate import hits, predict
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.curvature import input_curvature, top_eigenvalues
from glasshouse.measures.estimate import Estimate, mean, proportion
from glasshouse.registry import parse_spec, write_spec
from glasshouse.store import keep, kept
from glasshouse.studies.batch_robustness.printed import EPS, Schedule
from glasshouse.studies.batch_robustness.training import Learner, materials, train_central, train_federated
from glasshouse.studies.study import Workplace

TIME = "training-time"
"""The metric that says how far a training went."""
TOLERANCE = 3e-3
"""The relative residual at which an eigenvalue counts as found."""


def central_cell(learner: Learner, schedule: Schedule, batch: int, place: Workplace) -> list[Finding]:
    """A model trained in one place; schedules that come to the same training share one model."""
    recipe = schedule.recipe(batch, learner.epochs, learner.precision)
    rates = [recipe.lr_at(epoch, recipe.epochs) for epoch in range(recipe.epochs)]
    same = f"{learner} {batch} {recipe.momentum} {schedule.adversarial} {rates}"
    file = place.shared / "models" / f"{zlib.crc32(same.encode()):08x}-seed-{place.seed}.json"
    findings = kept(file, list[Finding])
    if findings is None:
        began = time.perf_counter()
        case = train_central(learner, schedule, batch, place.seed)
        measured = _measured(case, learner, time.perf_counter() - began, place)
        steps = recipe.total_steps(learner.train)
        reached = Estimate(training_time(recipe, learner.train), None, None, steps)
        findings = [*measured, case.subject.finding("utility", TIME, reached)]
        keep(file, findings)
    return findings


def federated_cell(
    learner: Learner, schedule: Schedule, division: str, clients: int, batch: int, place: Workplace
) -> list[Finding]:
    """A model trained by FedAvg."""
    began = time.perf_counter()
    case = train_federated(learner, schedule, division, clients, batch, place.engine, place.seed)
    return _measured(case, learner, time.perf_counter() - began, place)


def attack_name(attack: str, eps: float) -> str:
    """How a finding calls an attack with its limit."""
    name, options = parse_spec(attack, "attack")
    kept = "".join(f"{option}={value!r}," for option, value in options.items() if option != "eps")
    return f"{name}({kept}eps={eps:g})"


def at_eps(attack: str, limits: tuple[float, ...]) -> str:
    """The spec of an attack with these limits, whatever its other options."""
    name, options = parse_spec(attack, "attack")
    return write_spec(name, {**options, "eps": limits})


def training_time(recipe: Recipe, images: int) -> float:
    """How far a run over so many images goes: the sum of its learning rates, over 1 - momentum."""
    return recipe.summed_rate(images) / (1 - recipe.momentum)


def _measured(case: Case, learner: Learner, seconds: float, place: Workplace) -> list[Finding]:
    """Everything measured of a model whose training took so many `seconds`."""
    seed, model, subject = place.seed, case.model, case.subject
    images = materials(learner, seed)
    assert model is not None
    if _diverged(model, images.curved):
        nothing = Estimate(None, None, None, len(images.train), "the training diverged")
        return [subject.finding("utility", "test-accuracy", nothing, seconds=seconds)]
    return [
        *_accuracies(model, images.train, images.test, subject, seconds),
        *_attacked(case, EPS[images.test.shape[0]], seed, place.attack),
        *_curvature(model, images.curved, images.test[: learner.probed], subject, seed),
    ]


def _diverged(model: nn.Module, images: Images) -> bool:
    """Whether weights, answers or losses have left the numbers that float32 can hold."""
    if not torch.isfinite(read_vector(model)).all():
        return True
    losses = F.cross_entropy(predict(model, images.x), images.y, reduction="none")
    return not torch.isfinite(losses).all()


def _accuracies(
    model: nn.Module, train: Images, test: Images, subject: Subject, seconds: float
) -> Iterator[Finding]:
    logits = predict(model, train.x)
    shares = {
        "test-accuracy": (hits(model, test), test),
        "train-accuracy": (logits.argmax(1) == train.y, train),
    }
    for metric, (right, asked) in shares.items():
        majority = asked.label_counts().max().item() / len(asked)
        share = proportion(int(right.sum()), len(right))
        yield subject.finding("utility", metric, share, chance=majority, seconds=seconds)
    losses = F.cross_entropy(logits, train.y, reduction="none")
    yield subject.finding("utility", "train-loss", mean(losses.double().tolist()))


def _attacked(case: Case, limits: tuple[float, ...], seed: int, own: str) -> Iterator[Finding]:
    """Robust accuracy under each attack at each limit alone; the blind guess is noise of the same size."""
    for attack, limit in product(("fgsm", "pgd", *([own] if own else [])), limits):
        rng = torch_rng(seed, "attack", attack)
        examination = examine(case, at_eps(attack, (limit,)), ModelAccess, rng=rng, detailed=False)
        if examination.reason is not None:  # the user's own
            yield from examination.findings()
        for point in examination.exhibits().robustness:
            if point.eps:
                yield case.subject.finding(
                    examination.family,
                    "robust-accuracy",
                    Estimate(point.value, point.low, point.high, point.n or 0),
                    adversary=ModelAccess.adversary,
                    attack=attack_name(attack, point.eps),
                    chance=point.chance,
                    assumes=examination.granted,
                    seconds=examination.seconds,
                )


def _curvature(
    model: nn.Module, curved: Images, probed: Images, subject: Subject, seed: int
) -> Iterator[Finding]:
    began = time.perf_counter()
    top = top_eigenvalues(model, curved, tolerance=TOLERANCE, seed=seed)
    seconds = time.perf_counter() - began
    yield subject.finding("curvature", "top-eigenvalue", top.estimate, seconds=seconds)
    for metric, value in (("eigenvalue-residual", top.residual), ("hessian-products", top.products)):
        yield subject.finding("curvature", metric, Estimate(value, None, None, len(curved)))
    in_pixels = mean(input_curvature(model, probed, seed=seed).tolist(), bounds=(0.0, float("inf")))
    yield subject.finding("curvature", "input-eigenvalue", in_pixels)
