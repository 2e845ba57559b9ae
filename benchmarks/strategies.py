"""Times a round of every strategy beside one of FedAvg.

All train the same network from the same weights on the same random images, with their default options, and
take turns round by round. The section in docs/benchmarks.md is rewritten.
"""

import argparse
import os
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np
import torch
from page import fill
from processes import cpu_seconds

from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import History, Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build

WORKERS, CLIENTS, SERVERS_OWN = 2, 100, 2000
BASE = "fedavg"


class Turn(NamedTuple):
    """What a round took, on the clock and of all processes together, and the bytes to and from a client."""

    seconds: float
    cpu: float
    down: int
    up: int


class Kept(Record):
    """Keeps the history in memory, so that a federation can be asked for one round at a time."""

    history: History | None = None

    def save(self, history: History) -> None:
        self.history = history

    def load(self) -> History | None:
        return self.history


def make_split(samples: int) -> Split:
    """Random images of 28x28 pixels: `samples` for each client, and the server's own."""
    rng = np.random.default_rng(0)
    count = CLIENTS * samples
    x = torch.from_numpy(rng.random((count + SERVERS_OWN, 1, 28, 28), dtype=np.float32))
    pool = Images(x, torch.from_numpy(rng.integers(0, 10, len(x))), 10)
    clients = tuple(np.arange(count).reshape(CLIENTS, samples))
    nobody = np.arange(0)
    return Split(pool, clients, nobody, np.arange(count, len(x)), nobody)


def take_turns(names: list[str], samples: int, recipe: Recipe, rounds: int) -> dict[str, list[Turn]]:
    """The rounds of each strategy, after one to warm up."""
    split = make_split(samples)
    torch.manual_seed(0)
    model = build("lenet", split.pool.shape, split.pool.classes)
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    with Engine(WORKERS) as engine:
        players = {
            name: (Federation(model, split, recipe, engine=engine, strategy=STRATEGIES.make(name)), Kept())
            for name in names
        }
        for number in range(1 + rounds):
            for name, (federation, record) in players.items():
                began, used = time.perf_counter(), cpu_seconds(os.getpid())
                history = federation.run(
                    read_vector(model), Plan(rounds=number + 1, fraction=0.1), record=record
                )
                taken = time.perf_counter() - began, cpu_seconds(os.getpid()) - used
                row = history.rounds[-1]
                turns[name].append(Turn(*taken, row.down, row.up))
                print(f"round {number}, {name}: {taken[0]:.2f} s", file=sys.stderr, flush=True)
    return {name: taken[1:] for name, taken in turns.items()}


def table(turns: dict[str, list[Turn]], samples: int, recipe: Recipe) -> str:
    """A Markdown table of all strategies."""
    rounds = len(turns[BASE])
    lines = [
        f"**A round of every strategy**: LeNet, 10 of {CLIENTS} clients with {samples} images of 28x28, "
        f"{recipe.epochs} local epoch{'s' * (recipe.epochs > 1)} of batches of {recipe.batch_size}, "
        f"{SERVERS_OWN:,} images of the server's own, default options; "
        f"medians of {rounds} rounds on {os.cpu_count()} cores.",
        "",
        "| strategy | CPU seconds | of FedAvg's | from - to | seconds | of FedAvg's | kB down | kB up |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, taken in turns.items():
        medians = [statistics.median(getattr(turn, unit) for turn in taken) for unit in ("cpu", "seconds")]
        # Rounds of one turn saw much the same machine: their ratio says more than that of two medians.
        cpu, clock = (
            [getattr(own, unit) / getattr(base, unit) for own, base in zip(taken, turns[BASE])]
            for unit in ("cpu", "seconds")
        )
        lines.append(
            f"| `{name}` | {medians[0]:.2f} | {statistics.median(cpu):.2f}x "
            f"| {min(cpu):.2f} - {max(cpu):.2f} | {medians[1]:.2f} | {statistics.median(clock):.2f}x "
            f"| {taken[-1].down / 1000:,.1f} | {taken[-1].up / 1000:,.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds of each, after one to warm up")
    parser.add_argument("--samples", type=int, default=600, help="images of a client")
    parser.add_argument("--epochs", type=int, default=1, help="local epochs")
    parser.add_argument("--only", nargs="*", default=list(STRATEGIES), help="some of the strategies")
    given = parser.parse_args()
    names = [BASE, *(name for name in given.only if name != BASE)]
    recipe = Recipe(epochs=given.epochs, batch_size=60, lr=0.01)
    measured = table(take_turns(names, given.samples, recipe, given.rounds), given.samples, recipe)
    fill("strategies", measured)


if __name__ == "__main__":
    main()
