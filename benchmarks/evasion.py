"""Times PGD against foolbox's on the same models, images, steps and starts, and compares what they leave.

The images are Fashion-MNIST's test images where GLASSHOUSE_DATA holds them, else the embedded digits,
enlarged. Both attack in this process and take turns. The section in docs/benchmarks.md is rewritten.
"""

import argparse
import os
import statistics
import sys
import time
from typing import NamedTuple

import eagerpy as ep
import foolbox
import torch
import torch.nn.functional as F
from page import fill
from torch import Tensor, nn

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.evasion import Problem
from glasshouse.attacks.evasion.pgd import PGD
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.learning.ascent import ascend
from glasshouse.learning.evaluate import hits
from glasshouse.models import build

ATTACKED, TRAINED, STEPS = 1000, 2000, 40
NETWORKS = {"lenet": "LeNet", "m1": "M1"}


class Case(NamedTuple):
    """A way to train, and the limit of the attack on what it gives."""

    training: str
    eps: float
    epochs: int


CASES = (Case("plain", 0.3, 5), Case("adversarial", 0.1, 6))


class Turn(NamedTuple):
    """What an attack took, on the clock and of all cores together, and what it left right."""

    seconds: float
    cpu: float
    accuracy: float


def make_task() -> tuple[str, Images, Images]:
    """The name of the data, images to train on, and images to attack."""
    if os.environ.get("GLASSHOUSE_DATA"):
        data = load("fashion-mnist")
        assert data.test is not None
        return "Fashion-MNIST", data.train[:TRAINED], data.test[:ATTACKED]
    digits = load("digits").train
    large = Images(F.interpolate(digits.x, size=28, mode="bilinear").clamp(0, 1), digits.y, digits.classes)
    return "enlarged digits", large[:-ATTACKED], large[-ATTACKED:]


def train(network: str, case: Case, images: Images) -> nn.Module:
    """A network trained for a few epochs, on adversarial examples whose limit grows where `case` says so."""
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    model = build(network, images.shape, images.classes)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(case.epochs):
        eps = case.eps * min(1.0, 2 * (epoch + 1) / case.epochs)
        for batch in torch.randperm(len(images), generator=rng).split(64):
            x, y = images.x[batch], images.y[batch]
            if case.training == "adversarial":
                x = ascend(model, x, y, eps=eps, step=eps / 4, steps=7, rng=rng)
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimiser.step()
    return model.eval()


class SameStart(foolbox.attacks.LinfPGD):
    """Foolbox's attack, from given images instead of random ones."""

    def __init__(self, start: Tensor) -> None:
        super().__init__(steps=STEPS)
        self.start = start

    def get_random_start(self, x0: ep.Tensor, epsilon: float) -> ep.Tensor:
        return ep.astensor(self.start)


def with_glasshouse(model: nn.Module, images: Images, eps: float) -> Turn:
    began, used = time.perf_counter(), time.process_time()
    evidence = PGD(eps=eps, steps=STEPS).run(ModelAccess(model), Knowledge(images), torch.Generator())
    taken = time.perf_counter() - began, time.process_time() - used
    left = hits(model, Images(evidence.x[-1], images.y, images.classes))
    return Turn(*taken, left.double().mean().item())


def with_foolbox(model: nn.Module, images: Images, eps: float) -> Turn:
    problem = Problem.of(ModelAccess(model), Knowledge(images), torch.Generator())
    start = problem.random_start(problem.within(eps, "linf", torch.arange(len(images))), 0)
    began, used = time.perf_counter(), time.process_time()
    attacked = foolbox.PyTorchModel(model, bounds=(0, 1))
    _, _, fooled = SameStart(start)(attacked, images.x, images.y, epsilons=eps)
    taken = time.perf_counter() - began, time.process_time() - used
    return Turn(*taken, 1 - fooled.double().mean().item())


CONTESTANTS = {"Glasshouse": with_glasshouse, "foolbox": with_foolbox}


def report(repetitions: int) -> str:
    """A Markdown table of both contestants for each network, training and number of threads."""
    name, training, attacked = make_task()
    lines = [
        f"**PGD** on {len(attacked):,} images of {name}, {STEPS} steps of eps / 30; medians of {repetitions} "
        f"turns on {os.cpu_count()} cores, with foolbox {foolbox.__version__} in one batch.",
        "",
        "| model | eps | threads | Glasshouse | foolbox | faster by | from - to | in CPU seconds "
        "| left right | by foolbox |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for network, shown in NETWORKS.items():
        for case in CASES:
            model = train(network, case, training)
            for threads in (1, 2):
                torch.set_num_threads(threads)
                ours, theirs = _take_turns(model, attacked, case.eps, repetitions)
                label = f"{shown}, {case.training} | {case.eps:g} | {threads}"
                lines.append(f"| {label} | {_row(ours, theirs)} |")
                print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def _take_turns(model: nn.Module, images: Images, eps: float, repetitions: int) -> list[list[Turn]]:
    turns: list[list[Turn]] = [[] for _ in CONTESTANTS]
    for contestant in CONTESTANTS.values():
        contestant(model, images[:100], eps)
    for _ in range(repetitions):
        for taken, contestant in zip(turns, CONTESTANTS.values()):
            taken.append(contestant(model, images, eps))
    return turns


def _row(ours: list[Turn], theirs: list[Turn]) -> str:
    seconds, cpu = (
        [getattr(their, unit) / getattr(our, unit) for our, their in zip(ours, theirs)]
        for unit in ("seconds", "cpu")
    )
    medians = [statistics.median(turn.seconds for turn in turns) for turns in (ours, theirs)]
    return (
        f"{medians[0]:.2f} s | {medians[1]:.2f} s | {statistics.median(seconds):.1f}x | "
        f"{min(seconds):.1f} - {max(seconds):.1f} | {statistics.median(cpu):.1f}x | "
        f"{ours[0].accuracy:.3f} | {theirs[0].accuracy:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5, help="how often each contestant has its turn")
    measured = report(parser.parse_args().repetitions)
    fill("evasion", measured)


if __name__ == "__main__":
    main()
