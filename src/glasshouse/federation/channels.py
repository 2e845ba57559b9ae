"""What the server receives of the clients' updates."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from torch import Tensor

from glasshouse.federation.updates import Delivery, Update, blocks, weighted_sum


class Channel(ABC):
    """Carries the updates of one round to the server."""

    shows_updates: ClassVar[bool]

    @abstractmethod
    def deliver(self, updates: Sequence[Update]) -> Delivery:
        """What the server learns of `updates`."""


class Plain(Channel):
    """Every update arrives as it was sent."""

    shows_updates = True

    def deliver(self, updates: Sequence[Update]) -> Delivery:
        samples = sum(update.samples for update in updates)
        partial = [
            weighted_sum([updates[position] for position in block], samples)
            for block in blocks(range(len(updates)))
        ]
        clients = tuple(update.client for update in updates)
        return Delivery(sum_in_order(partial), samples, clients, tuple(updates))


def sum_in_order(vectors: Iterable[Tensor]) -> Tensor:
    """The sum of `vectors`, from first to last, as they arrive."""
    arriving = iter(vectors)
    total = next(arriving).clone()
    for vector in arriving:
        total += vector
    return total
