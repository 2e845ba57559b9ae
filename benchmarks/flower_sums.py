"""Times secure sums and client mods in Flower's Message API, in one process, beside rounds without them.

Every message passes through Flower's own serialisation, and so does the state of every client. Rounds with
and without take turns. It needs Flower: pip install 'glasshouse[flower]'. The section in docs/benchmarks.md
is rewritten.
"""

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import fill

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from flower_grid import InProcess, adding
from flwr.app import Array, ArrayRecord
from flwr.common.serde import message_to_proto
from flwr.serverapp.strategy import FedAvg

from glasshouse.integrations.flower import SecureGrid, defence_mod, secure_mod, vet_mod
from glasshouse.models import build

SIZES = ((10, 100_000), (10, 1_000_000), (30, 100_000), (100, 100_000))
SHAPE = (1, 28, 28)


def timed(work: Callable[[], Any]) -> float:
    """The seconds of a core that it takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def play(grid: Any, start: ArrayRecord) -> None:
    """One round of FedAvg."""
    FedAvg(fraction_evaluate=0.0).start(grid, start, num_rounds=1)


def sums(clients: int, parameters: int, turns: int) -> str:
    """A row of the first table."""
    start = ArrayRecord({"w": Array(np.zeros((parameters // 100, 100), np.float32))})
    change = {"w": np.random.default_rng(0).normal(size=(parameters // 100, 100)).astype(np.float32)}
    plain, secure, sent = [], [], 0
    for _ in range(turns):
        without = InProcess([adding(change) for _ in range(clients)])
        plain.append(timed(lambda: play(without, start)))  # noqa: B023
        grid = InProcess([adding(change, mods=[secure_mod()]) for _ in range(clients)])
        secure.append(timed(lambda: play(SecureGrid(grid), start)))  # noqa: B023
        sent = sum(message_to_proto(reply).ByteSize() for reply in grid.seen)
    usual = sum(message_to_proto(reply).ByteSize() for reply in without.seen)
    print(clients, parameters, plain, secure, file=sys.stderr, flush=True)
    return (
        f"| {clients} | {parameters:,} | {statistics.median(plain):.2f} | {statistics.median(secure):.2f} | "
        f"{min(secure):.2f} - {max(secure):.2f} | {usual / clients / 1000:,.1f} | "
        f"{sent / clients / 1000:,.1f} |"
    )


def mods(turns: int) -> list[str]:
    """The rows of the second table."""
    torch.manual_seed(0)
    network = build("lenet", SHAPE, 10)
    start = ArrayRecord(network.state_dict())
    contestants = {
        "`vet_mod(model, shape)`": [vet_mod(network, SHAPE)],
        "`vet_mod(model, shape, history=2)`": [vet_mod(network, SHAPE, history=2)],
        "`defence_mod('clipping+gaussian-noise')`": [defence_mod("clipping+gaussian-noise", network)],
    }
    rows = []
    for name, added in contestants.items():
        grids = [InProcess([adding({}, mods=around)] * 2) for around in ([], added)]
        for grid in grids * 3:  # models to compare with
            play(grid, start)
        pairs = [[timed(lambda: play(grid, start)) / 2 for grid in grids] for _ in range(turns)]  # noqa: B023
        more = [1000 * (with_it - without) for without, with_it in pairs]
        rows.append(f"| {name} | {statistics.median(more):.1f} | {min(more):.1f} - {max(more):.1f} |")
    return rows


def report(turns: int) -> str:
    """The section, in Markdown."""
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    before = os.getloadavg()[0]
    play(SecureGrid(InProcess([adding({}, mods=[secure_mod()])] * 3)), ArrayRecord([np.zeros(3)]))
    tables = [
        "| clients | parameters | CPU seconds, FedAvg | CPU seconds, through `SecureGrid` | from - to | "
        "kB up for each client | the same, through `SecureGrid` |",
        "|---|---|---|---|---|---|---|",
        *(sums(clients, parameters, turns) for clients, parameters in SIZES),
        "",
        "| mod, on LeNet | CPU milliseconds a client and round | from - to |",
        "|---|---|---|",
        *mods(turns),
    ]
    return "\n".join(
        [
            f"**Secure sums and mods in Flower**: one round of all clients and the server in one process, "
            f"nothing trained, all messages serialised; medians of {turns} turns on {os.cpu_count()} cores "
            f"under a load of {before:.1f} to {os.getloadavg()[0]:.1f}.",
            "",
            *tables,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="how many rounds of each kind")
    fill("flower-sums", report(parser.parse_args().turns))


if __name__ == "__main__":
    main()
