"""What travels in a round: each client's update, and what the server sees of them."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glasshouse.federation.rows import Rows


@dataclass(frozen=True, eq=False)
class Update:
    """What one client sends: its change of the model, shape (P,), and how many samples it trained on."""

    client: int
    samples: int
    delta: Tensor

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, has its own row and not the whole table it is a view of."""
        return _update, (self.client, self.samples, self.delta.numpy())

    def first(self, length: int) -> "Update":
        """The update without what lies beyond the first `length` entries."""
        return Update(self.client, self.samples, self.delta[:length])

    def of(self, samples: int) -> "Update":
        """The same update, said to be of `samples`."""
        return Update(self.client, samples, self.delta)


@dataclass(frozen=True, eq=False)
class Row:
    """The first `length` entries, or all, of the row at `place`."""

    rows: Rows
    place: int
    length: int | None = None

    def read(self) -> Tensor:
        """A view of the row in mapped memory."""
        return self.rows[self.place][: self.length]


class StoredUpdate(Update):
    """An update whose delta lies in a file and is mapped when it is asked for."""

    def __init__(self, client: int, samples: int, delta: Row | Tensor) -> None:
        for name, value in (("client", client), ("samples", samples), ("row", delta)):
            object.__setattr__(self, name, value)

    row: Row | Tensor

    @property
    def delta(self) -> Tensor:
        return self.row.read() if isinstance(self.row, Row) else self.row

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.row, Row):
            return StoredUpdate, (self.client, self.samples, self.row)
        return super().__reduce__()

    def first(self, length: int) -> Update:
        row = dataclasses.replace(self.row, length=length) if isinstance(self.row, Row) else self.row[:length]
        return StoredUpdate(self.client, self.samples, row)

    def of(self, samples: int) -> Update:
        return StoredUpdate(self.client, samples, self.row)


@dataclass(frozen=True, eq=False)
class Delivery:
    """What the channel hands to the server after a round.

    `mean` is the sum of the clients' deltas weighted by N_k / N, or by one over a number that does not depend
    on who took part, shape (P,); `updates` the single ones, where the channel shows them. Where the strategy
    asks for more, `summed` is the mean of what else clients send to be summed, weighted in the same way, and
    `reports` what each client reports. A channel that is a protocol counts the bytes that a client sent in
    it, on average, in `protocol_up`, and those that it received in `protocol_down`.
    """

    mean: Tensor
    samples: int
    clients: tuple[int, ...]
    updates: tuple[Update, ...] | None = None
    summed: Tensor | None = None
    reports: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    protocol_up: int | None = None
    protocol_down: int = 0

    def divided(self, divisor: int, sizes: Sequence[int]) -> "Delivery":
        """That of clients who weighed the same: their sum over `divisor` in the place of their mean.

        A client has as many samples as `sizes` says.
        """
        updates = self.updates
        return dataclasses.replace(
            self,
            mean=self.mean * (len(self.clients) / divisor),
            samples=sum(sizes[client] for client in self.clients),
            updates=updates and tuple(update.of(sizes[update.client]) for update in updates),
        )


def check_stored(updates: Iterable[Update]) -> None:
    """Refuse updates whose file is damaged."""
    rows = [
        update.row.rows
        for update in updates
        if isinstance(update, StoredUpdate) and isinstance(update.row, Row)
    ]
    for table in dict.fromkeys(rows):
        table.check()


def _update(client: int, samples: int, delta: np.ndarray) -> Update:
    return Update(client, samples, torch.from_numpy(delta))


def weighted_sum(updates: Iterable[Update], samples: int) -> Tensor:
    """The sum of the deltas in their order, each weighted by its share of `samples`."""
    total: Tensor | None = None
    for update in updates:
        share = update.samples / samples
        total = update.delta * share if total is None else total.add_(update.delta, alpha=share)
    assert total is not None
    return total


def pieces(clients: Iterable[int], rows: int) -> list[tuple[int, ...]]:
    """The blocks of `clients`, each cut into pieces of at most `rows` clients."""
    return [block[start : start + rows] for block in blocks(clients) for start in range(0, len(block), rows)]


def blocks(clients: Iterable[int], count: int = 8) -> list[tuple[int, ...]]:
    """Group `clients` into at most `count` blocks of nearly equal size.

    Sums run within blocks first and then over blocks, so that they are the same for any number of workers.
    Eight blocks keep two to eight workers busy with few vectors in transit.
    """
    clients = list(clients)
    count = min(count, len(clients))
    sizes = [len(clients) // count + (position < len(clients) % count) for position in range(count)]
    return [tuple(int(client) for client in block) for block in torch.tensor(clients).split(sizes)]
