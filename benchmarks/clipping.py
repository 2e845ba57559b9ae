"""Times a step that clips and hides each sample against a plain one, beside opacus and a loop over samples.

Everybody steps LeNet on the same batch with one thread, in this process by turns. The section in
docs/benchmarks.md is rewritten.
"""

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from copy import deepcopy

import opacus
import torch
import torch.nn.functional as F
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from page import fill
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.learning.clipping import ClippedSum, NoisySum
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.learning.fit import batch_loss
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import PLAIN, Step
from glasshouse.models import build

BATCH, NORM, NOISE, LR = 32, 1.0, 1.0, 0.05
SHAPES = {"1x28x28": (1, 28, 28), "3x32x32": (3, 32, 32)}
STEPS = 20
"""Steps of a turn."""

Run = Callable[[], None]
"""One training step."""


def glasshouse(network: nn.Module, images: Images, kind: Step) -> Run:
    """A step as `fit` takes it."""
    model, recipe = laid_out(deepcopy(network)).train(), Recipe(batch_size=BATCH, lr=LR)
    optimiser = recipe.make_optimiser(list(model.parameters()))
    x, y, rng = channels_last(images.x), images.y, torch.Generator()
    step = kind.started(model, 10 * BATCH, recipe)
    loss = batch_loss(model, recipe, step)

    def run() -> None:
        optimiser.zero_grad()
        step.backward(model, x, y, loss, rng)
        optimiser.step()

    return run


def plain_torch(network: nn.Module, images: Images) -> Run:
    """A step as tutorials write it."""
    model = deepcopy(network).train()
    optimiser = torch.optim.SGD(model.parameters(), LR)

    def run() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(images.x), images.y).backward()
        optimiser.step()

    return run


def opacus_hooks(network: nn.Module, images: Images) -> Run:
    """Opacus with the gradients of all samples in memory."""
    model = GradSampleModule(deepcopy(network).train())
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), LR),
        noise_multiplier=NOISE,
        max_grad_norm=NORM,
        expected_batch_size=BATCH,
    )

    def run() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(images.x), images.y).backward()
        optimiser.step()

    return run


def opacus_ghost(network: nn.Module, images: Images) -> Run:
    """Opacus with norms from activations, and a second backward pass."""
    model = GradSampleModuleFastGradientClipping(deepcopy(network).train(), max_grad_norm=NORM)
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), LR),
        noise_multiplier=NOISE,
        max_grad_norm=NORM,
        expected_batch_size=BATCH,
    )
    criterion = DPLossFastGradientClipping(model, optimiser, nn.CrossEntropyLoss())

    def run() -> None:
        optimiser.zero_grad()
        criterion(model(images.x), images.y).backward()
        optimiser.step()

    return run


def sample_loop(network: nn.Module, images: Images) -> Run:
    """A backward pass for each sample, in the network as Glasshouse lays it out."""
    model, recipe = laid_out(deepcopy(network)).train(), Recipe(batch_size=BATCH, lr=LR)
    optimiser = recipe.make_optimiser(list(model.parameters()))
    clipped, loss = ClippedSum(model, NORM), batch_loss(model, recipe, PLAIN)
    x = channels_last(images.x)

    def run() -> None:
        for parameter, total in clipped.one_by_one(x, images.y, loss).items():
            noise: Tensor = torch.randn(parameter.shape) * NOISE * NORM
            parameter.grad = (total + noise) / BATCH
        optimiser.step()

    return run


CONTESTANTS: dict[str, Callable[[nn.Module, Images], Run]] = {
    "plain step, Glasshouse": lambda network, images: glasshouse(network, images, PLAIN),
    "plain step, PyTorch": plain_torch,
    "`dp-sgd`, Glasshouse": lambda network, images: glasshouse(
        network, images, NoisySum(norm=NORM, noise=NOISE)
    ),
    "opacus, hooks": opacus_hooks,
    "opacus, ghost clipping": opacus_ghost,
    "loop over samples": sample_loop,
}


def report(turns: int) -> str:
    """A Markdown table of what a step takes, and its ratio to the plain steps of the same turn."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Full backward hook is firing")  # opacus's own
    lines = [
        f"**Clipping each sample**: LeNet, batches of {BATCH}, one thread; medians of {turns} turns of "
        f"{STEPS} steps on {os.cpu_count()} cores, with opacus {opacus.__version__}.",
        "",
        "| images | step | ms | times a plain step of Glasshouse | from - to | times one of PyTorch |",
        "|---|---|---|---|---|---|",
    ]
    for name, shape in SHAPES.items():
        taken = _take_turns(shape, turns)
        ours, theirs = taken["plain step, Glasshouse"], taken["plain step, PyTorch"]
        for contestant, seconds in taken.items():
            ratios = [one / plain for one, plain in zip(seconds, ours)]
            over = statistics.median(one / plain for one, plain in zip(seconds, theirs))
            lines.append(
                f"| {name} | {contestant} | {1000 * statistics.median(seconds):.2f} | "
                f"{statistics.median(ratios):.2f}x | {min(ratios):.2f} - {max(ratios):.2f} | {over:.2f}x |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def _take_turns(shape: tuple[int, int, int], turns: int) -> dict[str, list[float]]:
    """Seconds of a step in every turn of each contestant."""
    torch.manual_seed(0)
    network = build("lenet", shape, 10)
    images = Images(torch.rand(BATCH, *shape), torch.randint(10, (BATCH,)), 10)
    runs = {name: make(network, images) for name, make in CONTESTANTS.items()}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(-1, turns):  # the first warms up
        for name, run in runs.items():
            began = time.perf_counter()
            for _ in range(STEPS):
                run()
            if turn >= 0:
                taken[name].append((time.perf_counter() - began) / STEPS)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15, help="how often each contestant has its turn")
    fill("clipping", report(parser.parse_args().turns))


if __name__ == "__main__":
    main()
