"""Times training steps with transformation policies beside steps without, in turns.

    python benchmarks/policies.py [--batch 128] [--models lenet,convnet-16] [--threads 1,2]

Batches are of 3x32x32 images. The section in docs/benchmarks.md is rewritten.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from page import fill

from glasshouse.defences.policies.policy import parse_policy
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.models import build

POLICIES = ("3-1-7", "43-18-18", "3-1-7+43-18-18", "19-15-45+2-43-21", "10-10-9")
"""Published ones, and the slowest that can be written: two shears and an equalisation."""

TURNS = 20
"""How often each step is timed."""

Transform = Callable[[torch.Tensor], torch.Tensor]


def training_step(name: str, x: torch.Tensor) -> Callable[[Transform], None]:
    """A step of SGD on a batch that is transformed first."""
    model = laid_out(build(name, tuple(x.shape[1:]), 10)).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    y = torch.arange(len(x)) % 10

    def step(transform: Transform) -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(transform(x)), y).backward()
        optimiser.step()

    return step


def compare(step: Callable[[Transform], None]) -> dict[str, list[float]]:
    """Milliseconds of each turn, without a policy and with each."""
    rng = torch.Generator().manual_seed(0)
    ways: dict[str, Transform] = {"none": lambda x: x}
    for policy in map(parse_policy, POLICIES):
        ways[str(policy)] = lambda x, policy=policy: policy.apply(x, rng)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, transform in ways.items():
            start = time.perf_counter()
            step(transform)
            if turn:  # the first one warms up
                times[name].append(1000 * (time.perf_counter() - start))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--models", default="lenet,convnet-16")
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    rows = [
        f"**Training steps with policies**: {options.batch} images of 3x32x32, medians of {TURNS} turns.",
        "",
        f"| network | threads | no policy, ms | {' | '.join(POLICIES)} |",
        "| --- |" + " --- |" * (len(POLICIES) + 2),
    ]
    x = channels_last(torch.rand(options.batch, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    for name in options.models.split(","):
        for threads in map(int, options.threads.split(",")):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            medians = {way: statistics.median(ms) for way, ms in compare(training_step(name, x)).items()}
            ratios = [f"{medians[policy] / medians['none']:.2f}x" for policy in POLICIES]
            rows.append(f"| `{name}` | {threads} | {medians['none']:.1f} | {' | '.join(ratios)} |")
    fill("policies", "\n".join(rows))


if __name__ == "__main__":
    main()
