"""Times rounds of a federation that are recorded beside rounds that are not.

Ten clients train LeNet on 600 images each, one after the other with one thread. Rounds with and without a
recorder take turns, from the same weights, so that whatever else the machine does slows both. The section in
docs/benchmarks.md is rewritten.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from page import fill
from torch import nn

from glasshouse import Recorder
from glasshouse.data.images import Images
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build

CLIENTS, IMAGES, SHAPE = 10, 600, (1, 28, 28)
RECIPE = Recipe(epochs=1, batch_size=60, lr=0.05)


class Federation:
    """Clients that train from the same weights in every round."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network: nn.Module = laid_out(build("lenet", SHAPE, 10))
        self.start = read_vector(self.network)
        self.clients = [
            Images(torch.rand(IMAGES, *SHAPE), torch.randint(10, (IMAGES,)), 10) for _ in range(CLIENTS)
        ]

    def round(self, number: int, recorder: Recorder) -> tuple[float, float]:
        """Seconds that a round takes, and those of them that the recorder does."""
        began, recorded = time.perf_counter(), 0.0
        write_vector(self.network, self.start)
        entered = time.perf_counter()
        with recorder.round(number, self.network.state_dict()) as seen:
            recorded += time.perf_counter() - entered
            for client, images in enumerate(self.clients):
                fit(self.network, self.start, images, RECIPE, seed=client)
                before = time.perf_counter()
                seen.update(str(client), self.network.state_dict(), samples=len(images))
                recorded += time.perf_counter() - before
            leaving = time.perf_counter()
        recorded += time.perf_counter() - leaving
        return time.perf_counter() - began, recorded


def report(turns: int) -> str:
    """The section, in Markdown."""
    torch.set_num_threads(1)
    federation, before = Federation(), os.getloadavg()[0]
    with_it, without, shares = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        every, never = (
            Recorder(Path(folder) / name, every=every) for name, every in (("a", 1), ("b", 10**9))
        )
        federation.round(1, never)  # it warms up, and is the only one that this recorder takes
        for turn in range(turns):
            order = (every, never) if turn % 2 else (never, every)
            for recorder in order:
                seconds, recorded = federation.round(turn + 2, recorder)
                (with_it if recorder is every else without).append(seconds)
                if recorder is every:
                    shares.append(recorded / (seconds - recorded))
            print(f"{with_it[-1]:.2f} s, {without[-1]:.2f} s, {shares[-1]:.2%}", file=sys.stderr, flush=True)
        size = sum(file.stat().st_size for file in (Path(folder) / "a").rglob("*") if file.is_file()) / turns
    ratios = [one / other for one, other in zip(with_it, without)]
    return "\n".join(
        [
            f"**Recording rounds**: LeNet, {CLIENTS} clients of {IMAGES} images of 28x28, 1 epoch of batches "
            f"of {RECIPE.batch_size}, one thread; {turns} rounds with and {turns} without a recorder, by "
            f"turns, on {os.cpu_count()} cores under a load of {before:.1f} to {os.getloadavg()[0]:.1f}.",
            "",
            "| | median | from - to |",
            "|---|---|---|",
            f"| a round that is not recorded | {statistics.median(without):.2f} s | {_span(without)} |",
            f"| a round that is recorded | {statistics.median(with_it):.2f} s | {_span(with_it)} |",
            f"| recorded over not, pair by pair | {statistics.median(ratios):.3f} | {_span(ratios, 3)} |",
            f"| the recorder's time over the rest of its round | {statistics.median(shares):.1%} | "
            f"{min(shares):.1%} - {max(shares):.1%} |",
            f"| a round on the disk | {size / 2**20:.1f} MiB | |",
        ]
    )


def _span(values: list[float], digits: int = 2) -> str:
    return f"{min(values):.{digits}f} - {max(values):.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="how many rounds of each kind")
    fill("recording", report(parser.parse_args().turns))


if __name__ == "__main__":
    main()
