"""Times secure aggregation for more and more clients and parameters, and how its cost grows with either.

Updates are random; a round is all that the clients and the server compute, in this process. The section in
docs/benchmarks.md is rewritten.
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from page import fill

from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.secagg.graph import COLLUDING, guarantee
from glasshouse.federation.updates import Update

CLIENTS, PARAMETERS = (10, 25, 50, 100), 100_000
FEW, LENGTHS = 10, (10_000, 100_000, 1_000_000, 10_000_000)
DROPPING = Secure(dropout_before=0.1, dropout_after=0.2)
MLP = 55_210  # parameters of the model mlp on images of 8 x 8
MANY = (
    (200, Secure()),
    (200, Secure(neighbours="auto")),
    (1000, Secure(neighbours="auto")),
    (1000, Secure(neighbours="auto", dropout_before=0.05, dropout_after=0.05)),
)


class Cost(NamedTuple):
    """What a round costs: its seconds, and those of all cores together."""

    seconds: float
    cpu: float


def measure(channel: Secure, clients: int, parameters: int, repetitions: int) -> Cost:
    """The median cost of a round, after one of two clients to warm up."""
    rng = torch.Generator().manual_seed(0)
    vector = torch.randn(parameters, generator=rng)
    updates = [Update(client, 100 + client, vector) for client in range(clients)]
    Secure().deliver(updates[:2], 0)
    costs = []
    for repetition in range(repetitions):
        began, used = time.perf_counter(), time.process_time()
        channel.deliver(updates, repetition)
        costs.append(Cost(time.perf_counter() - began, time.process_time() - used))
        print(f"{clients} x {parameters:,}: {costs[-1].seconds:.2f} s", file=sys.stderr, flush=True)
    return Cost(*(statistics.median(column) for column in zip(*costs)))


def growth(sizes: Sequence[int], costs: Sequence[Cost]) -> str:
    """The exponent of the last growth: cost ~ size ** exponent; in CPU seconds, the steadier ones."""
    return f"{math.log(costs[-1].cpu / costs[-2].cpu) / math.log(sizes[-1] / sizes[-2]):.1f}"


def many(repetitions: int) -> list[str]:
    """A table of rounds of many clients: the complete graph, and sparse ones with their guarantee."""
    lines = [
        "",
        f"| clients x {MLP:,} parameters | neighbours | drop out | more than the sum is learnt "
        "| the round fails | seconds | CPU seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for clients, channel in MANY:
        dropping = channel.dropout_before + channel.dropout_after
        neighbours = channel.neighbours_among(clients)
        chances = guarantee(clients, neighbours or clients - 1, channel.threshold, dropping=dropping)
        learnt = chances.exposed + chances.parted
        cost = measure(channel, clients, MLP, repetitions)
        lines.append(
            f"| {clients:,} | {neighbours or 'all'} | {dropping:.0%} "
            f"| {learnt:.0e} | {chances.failed:.0e} | {cost.seconds:.1f} | {cost.cpu:.1f} |"
        )
    return [*lines, "", f"Chances are bounds, if {COLLUDING:.0%} of the clients collude with the server."]


def report(repetitions: int) -> str:
    """Markdown tables over clients and over parameters, with the exponents."""
    by_clients = [measure(Secure(), clients, PARAMETERS, repetitions) for clients in CLIENTS]
    dropping = [measure(DROPPING, clients, PARAMETERS, repetitions) for clients in CLIENTS]
    by_length = [measure(Secure(), FEW, length, repetitions) for length in LENGTHS]
    lines = [
        f"**Secure aggregation**: one round, all clients and the server together; medians of {repetitions} "
        f"rounds on {os.cpu_count()} cores.",
        "",
        f"| clients x {PARAMETERS:,} parameters | seconds | CPU seconds | with drop-outs | CPU seconds |",
        "|---|---|---|---|---|",
    ]
    for clients, whole, dropped in zip(CLIENTS, by_clients, dropping):
        cells = (whole.seconds, whole.cpu, dropped.seconds, dropped.cpu)
        lines.append(f"| {clients} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    lines += [
        "",
        f"From {CLIENTS[-2]} to {CLIENTS[-1]} clients the cost grows with their number to the power of "
        f"{growth(CLIENTS, by_clients)}, with drop-outs of {growth(CLIENTS, dropping)}.",
        "",
        f"| parameters x {FEW} clients | seconds | CPU seconds |",
        "|---|---|---|",
    ]
    for length, cost in zip(LENGTHS, by_length):
        lines.append(f"| {length:,} | {cost.seconds:.2f} | {cost.cpu:.2f} |")
    lines += [
        "",
        f"From {LENGTHS[-2]:,} to {LENGTHS[-1]:,} parameters it grows with their number to the power of "
        f"{growth(LENGTHS, by_length)}.",
        *many(repetitions),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3, help="how many rounds are timed of each size")
    measured = report(parser.parse_args().repetitions)
    fill("secagg", measured)


if __name__ == "__main__":
    main()
