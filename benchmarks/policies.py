"""Times transformation policies beside a training step, on one thread.

    python benchmarks/policies.py [--batch 128] [--models lenet,resnet20-4]

Prints milliseconds for one batch of 3x32x32 images: the fastest and the median of the turns.
"""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from glasshouse.defences.policies.operations import OPERATIONS
from glasshouse.defences.policies.policy import parse_policy
from glasshouse.defences.policies.transformations import Transformation
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.models import build

POLICIES = ("3-1-7", "43-18-18", "3-1-7+43-18-18", "19-15-45+2-43-21", "10-10-9")
"""Published ones, and the slowest that can be written: two shears and an equalisation."""

LEVEL, TURNS, STEPS = 6, 40, 20
"""The level of the operations; how often each transformation, and each step, is timed."""


def milliseconds(work: Callable[[], object], turns: int) -> tuple[float, float]:
    """The fastest turn and the median one, after one that warms up."""
    work()
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    times.sort()
    return times[0], times[turns // 2]


def training_step(name: str, x: torch.Tensor) -> Callable[[], None]:
    model = laid_out(build(name, tuple(x.shape[1:]), 10)).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    y = torch.arange(len(x)) % 10

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--models", default="lenet")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    x = channels_last(torch.rand(options.batch, 3, 32, 32, generator=rng))
    levels = (255 * x).to(torch.uint8).contiguous()
    for operation in OPERATIONS:
        transformation = Transformation(operation, LEVEL)
        show(operation, *milliseconds(lambda t=transformation: t.apply(levels, rng), TURNS))
    for policy in map(parse_policy, POLICIES):
        show(str(policy), *milliseconds(lambda p=policy: p.apply(x, rng), TURNS))
    for name in options.models.split(","):
        show(f"step of {name}", *milliseconds(training_step(name, x), STEPS))


def show(what: str, fastest: float, median: float) -> None:
    print(f"{what:<24} {fastest:8.2f} {median:8.2f}")


if __name__ == "__main__":
    main()
