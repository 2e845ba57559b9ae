"""What the server receives of the clients' updates."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from torch import Tensor

from glasshouse.federation.updates import Delivery, Update, blocks, weighted_sum


class RoundFailed(Exception):
    """The channel could not deliver a round; the message says why, and nothing of the updates."""


class Channel(ABC):
    """Carries the updates of one round to the server."""

    shows_updates: ClassVar[bool]

    @abstractmethod
    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        """What the server learns of `updates`; whatever is drawn on the way follows from `seed`.

        Raises `RoundFailed` where too few clients are left.
        """

    @property
    @abstractmethod
    def described(self) -> str:
        """What a finding says of the channel that its evidence came through."""


class Plain(Channel):
    """Every update arrives as it was sent."""

    shows_updates = True

    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        return Delivery(*_totals(updates), tuple(updates))

    @property
    def described(self) -> str:
        return "every client's update as it was sent"


class Ideal(Channel):
    """The exact sum arrives and nothing else: secure aggregation without its masks and quantisation."""

    shows_updates = False

    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        return Delivery(*_totals(updates))

    @property
    def described(self) -> str:
        return "an ideal channel: the exact sum, without the masks and the quantisation of a real protocol"


def _totals(updates: Sequence[Update]) -> tuple[Tensor, int, tuple[int, ...]]:
    """The weighted mean of the deltas, and how many samples of which clients are in it."""
    if not updates:
        raise RoundFailed("no client sent an update; let some take part")
    samples = sum(update.samples for update in updates)
    partial = [
        weighted_sum([updates[position] for position in block], samples)
        for block in blocks(range(len(updates)))
    ]
    return sum_in_order(partial), samples, tuple(update.client for update in updates)


def sum_in_order(vectors: Iterable[Tensor]) -> Tensor:
    """The sum of `vectors`, from first to last, as they arrive."""
    arriving = iter(vectors)
    total = next(arriving).clone()
    for vector in arriving:
        total += vector
    return total
