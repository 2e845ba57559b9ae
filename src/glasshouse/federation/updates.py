"""What travels in a round: each client's update, and what the server sees of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Update:
    """What one client sends: its change of the model, shape (P,), and how many samples it trained on."""

    client: int
    samples: int
    delta: Tensor


@dataclass(frozen=True, eq=False)
class Delivery:
    """What the channel hands to the server after a round.

    `mean` is the sum of the clients' deltas weighted by N_k / N, shape (P,); `updates` the single ones,
    where the channel shows them. Where the strategy asks for more, `summed` is the mean of what else clients
    send to be summed, weighted in the same way, and `reports` what each client reports.
    """

    mean: Tensor
    samples: int
    clients: tuple[int, ...]
    updates: tuple[Update, ...] | None = None
    summed: Tensor | None = None
    reports: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)


def weighted_sum(updates: Iterable[Update], samples: int) -> Tensor:
    """The sum of the deltas in their order, each weighted by its share of `samples`."""
    total: Tensor | None = None
    for update in updates:
        share = update.samples / samples
        total = update.delta * share if total is None else total.add_(update.delta, alpha=share)
    assert total is not None
    return total


def blocks(clients: Iterable[int], count: int = 8) -> list[tuple[int, ...]]:
    """Group `clients` into at most `count` blocks of nearly equal size.

    Sums run within blocks first and then over blocks, so that they are the same for any number of workers.
    Eight blocks keep two to eight workers busy with few vectors in transit.
    """
    clients = list(clients)
    count = min(count, len(clients))
    sizes = [len(clients) // count + (position < len(clients) % count) for position in range(count)]
    return [tuple(int(client) for client in block) for block in torch.tensor(clients).split(sizes)]
