"""What the server receives of the clients' updates."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.federation.updates import Delivery, Update, blocks, weighted_sum
from glasshouse.learning.seeds import numpy_rng
from glasshouse.options import check_number


class RoundFailed(Exception):
    """The channel could not deliver a round; the message says why, and reveals nothing of the updates."""


class NobodySent(RoundFailed):
    """No update reached the server."""


class Channel(ABC):
    """Carries the updates of one round to the server."""

    shows_updates: ClassVar[bool]
    least: ClassVar[int] = 1
    """How many clients have to take part in a round."""

    @property
    def loses_updates(self) -> bool:
        """Whether some of the clients' updates are lost."""
        return False

    def fewest(self, clients: int) -> int:
        """How many updates of `clients` a sum has at least, if as many drop out as the channel expects."""
        return 1

    @property
    def largest(self) -> float:
        """The size beyond which entries of an update are cut."""
        return math.inf

    @abstractmethod
    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        """What the server receives of `updates`; all that is drawn follows from `seed`.

        Raises `RoundFailed` where too few clients are left.
        """

    @property
    @abstractmethod
    def described(self) -> str:
        """What a finding says of the channel that its evidence came through."""


@dataclass(frozen=True, kw_only=True)
class Plain(Channel):
    """Every update arrives as it was sent, but for a share `dropout` of the clients that drop out before."""

    shows_updates = True

    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_number("plain", "dropout", self.dropout, 0, 1, open_high=True)

    @property
    def loses_updates(self) -> bool:
        return self.dropout > 0

    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        gone, _ = draw_dropouts([update.client for update in updates], self.dropout, 0.0, seed)
        arrived = [update for update in updates if update.client not in gone]
        return Delivery(*_totals(arrived), tuple(arrived))

    @property
    def described(self) -> str:
        lost = f", {self.dropout:.0%} of the clients dropping out before they send" if self.dropout else ""
        return f"every client's update as it was sent{lost}"


class Ideal(Channel):
    """The exact sum arrives and nothing else: secure aggregation without its masks and quantisation."""

    shows_updates = False

    def fewest(self, clients: int) -> int:
        return clients

    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        return Delivery(*_totals(updates))

    @property
    def described(self) -> str:
        return "an ideal channel: the exact sum, without the masks and the quantisation of a real protocol"


def _totals(updates: Sequence[Update]) -> tuple[Tensor, int, tuple[int, ...]]:
    """The weighted mean of the deltas, and how many samples of which clients are in it."""
    if not updates:
        raise NobodySent("no client sent an update; let more of them take part, or fewer drop out")
    samples = sum(update.samples for update in updates)
    groups = blocks(range(len(updates)))
    partial = (weighted_sum([updates[place] for place in group], samples) for group in groups)
    return sum_in_order(partial), samples, tuple(update.client for update in updates)


def sum_in_order(vectors: Iterable[Tensor]) -> Tensor:
    """The sum of `vectors`, from first to last, as they arrive; empty where there are none."""
    arriving = iter(vectors)
    total = next(arriving, torch.empty(0)).clone()
    for vector in arriving:
        total += vector
    return total


def check_dropouts(before: float, after: float) -> None:
    """Check the shares of clients that drop out `before` they send their masked vector and `after` it."""
    for name, share in (("dropout_before", before), ("dropout_after", after)):
        check_number("channel", name, share, 0, 1, open_high=True)
    if before + after >= 1:
        raise BadInput(
            f"dropout_before = {before} and dropout_after = {after} leave no client; "
            "their sum must be below 1"
        )


def check_updates(updates: Iterable[Update]) -> tuple[dict[int, int], torch.Size, torch.dtype]:
    """Every client's samples, and the shape and the precision that all updates have: vectors of floats."""
    samples: dict[int, int] = {}
    shape, dtype = torch.Size(), torch.float32
    for update in updates:
        name, delta = update.client, update.delta
        if delta.ndim != 1 or not len(delta):
            raise BadInput(
                f"client {name}: its update has shape {tuple(delta.shape)}; "
                "give a vector with an entry for each parameter"
            )
        if delta.dtype not in (torch.float32, torch.float64):
            raise BadInput(f"client {name}: its update is {delta.dtype}; give torch.float32 or torch.float64")
        if not samples:
            shape, dtype = delta.shape, delta.dtype
        if (delta.shape, delta.dtype) != (shape, dtype):
            raise BadInput(
                f"client {name}: its update is {delta.dtype} of {len(delta)} entries, client "
                f"{next(iter(samples))}'s {dtype} of {shape[0]}; all clients must send the same"
            )
        if name in samples:
            raise BadInput(f"client {name} is in the round twice; give each client another number")
        if update.samples < 0:
            raise BadInput(f"client {name} has {update.samples} samples; give a number from 0")
        samples[name] = update.samples
    if samples and not any(samples.values()):
        raise BadInput("no client has any samples to weigh its update by; give at least one")
    return samples, shape, dtype


def staying(clients: int, before: float) -> int:
    """How many of `clients` send their masked vector where a share `before` of them drops out first."""
    return clients - math.floor(before * clients + 0.5)


def draw_dropouts(
    clients: Sequence[int], before: float, after: float, seed: int
) -> tuple[set[int], set[int]]:
    """Who drops out before sending its masked vector, and who after: the nearest numbers to both shares."""
    order = [int(client) for client in numpy_rng(seed, "drop-outs").permutation(clients)]
    first, second = (math.floor(share * len(order) + 0.5) for share in (before, after))
    return set(order[:first]), set(order[first : first + second])
