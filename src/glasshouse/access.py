"""What each adversary can touch: the only thing an attack ever receives.

An access object holds what its adversary has and nothing else. Where the adversary may only ask (a
prediction, a round of training), the object holds a function to ask with, not the thing that answers.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from glasshouse.federation.channels.channel import Channel, Plain
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Access:
    """The base of all access objects."""

    adversary: ClassVar[str]


@dataclass(frozen=True, eq=False)
class QueryAccess(Access):
    """Asks the final model for predictions: `probabilities(x)` maps (N, C, H, W) to (N, classes)."""

    adversary = "outsider"
    probabilities: Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class ModelAccess(Access):
    """Holds the final model itself, in eval mode: its weights, and gradients through it."""

    adversary = "owner"
    model: nn.Module

    def logits(self, x: Tensor) -> Tensor:
        """The model's outputs, differentiable, shape (N, classes)."""
        assert not self.model.training
        outputs: Tensor = self.model(x)
        return outputs


@dataclass(frozen=True, eq=False)
class Protocol:
    """What every server knows, because it wrote it: network, layout, the clients' recipe, task and channel.

    `shape` is that of an image: channels, height and width. Clients know it too, since they follow it. What
    the `strategy` has a client do, an adversary can simulate.
    """

    architecture: nn.Module
    layout: Layout
    recipe: Recipe
    shape: tuple[int, int, int]
    classes: int
    channel: Channel = field(default_factory=Plain)
    strategy: Strategy = field(default_factory=FedAvg)

    def in_round(self, number: int) -> "Protocol":
        """The protocol of round `number`, counted from 0, from which the learning rate may follow."""
        recipe = self.recipe.in_round(number)
        return self if recipe is self.recipe else dataclasses.replace(self, recipe=recipe)


@dataclass(frozen=True, eq=False)
class SeenRound:
    """A round that somebody saw: its number, and the model that the server sent, shape (P,)."""

    number: int
    sent: Tensor


@dataclass(frozen=True, eq=False)
class SeenUpdates(SeenRound):
    """A round in which every update was seen; those of many clients are read from disk, one by one."""

    updates: tuple[Update, ...]


@dataclass(frozen=True, eq=False)
class SeenSum(SeenRound):
    """A round in which only the weighted mean, shape (P,), was seen, and each client's sample count.

    Where a defence weighs all clients alike, `mean` is their sum over a public `divisor`.
    """

    mean: Tensor
    clients: tuple[int, ...]
    sizes: tuple[int, ...]
    divisor: int | None = None

    @property
    def average(self) -> Tensor:
        """The mean over those who took part, shape (P,), whatever their sum was divided by."""
        return self.mean if self.divisor is None else self.mean * (self.divisor / len(self.clients))


@dataclass(frozen=True, eq=False)
class SeenReports(SeenRound):
    """A round in which clients reported something about the model sent beside their updates.

    `reports` has what each client reported, by name, and `sizes` its sample count.
    """

    reports: Mapping[int, Mapping[str, Tensor]]
    sizes: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class SeenPayload(SeenRound):
    """A round in which the server sent something beside the model: `payload`, by name."""

    payload: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class UpdateAccess(Access):
    """Reads, round by round, the model sent and every client's update."""

    adversary = "curious server"
    protocol: Protocol
    rounds: tuple[SeenUpdates, ...]


@dataclass(frozen=True, eq=False)
class AggregateAccess(Access):
    """Reads, round by round, the model sent and the sum of the updates."""

    adversary = "blind server"
    protocol: Protocol
    rounds: tuple[SeenSum, ...]


@dataclass(frozen=True, eq=False)
class ReportAccess(Access):
    """Reads, round by round, what clients report beside their updates: in the clear, whatever the channel."""

    adversary = "curious server"
    protocol: Protocol
    rounds: tuple[SeenReports, ...]


@dataclass(frozen=True, eq=False)
class PayloadAccess(Access):
    """Reads, round by round, the model received and what came beside it, as every participant does."""

    adversary = "client"
    protocol: Protocol
    rounds: tuple[SeenPayload, ...]


class Exchange(typing.Protocol):
    """Runs one round with the clients of those numbers; those in `apart` get a model of their own.

    Raises `RoundFailed` where the channel cannot deliver, or every client refuses the model.
    """

    def __call__(
        self, vector: Tensor, clients: Sequence[int], apart: Mapping[int, Tensor] | None = None
    ) -> Delivery:
        """What the channel delivers."""


@dataclass(frozen=True, eq=False)
class ServerAccess(Access):
    """Chooses the parameters it sends and receives what the channel delivers.

    `sizes` are the clients' sample counts. `rebuilt(network)` is the same access to clients that train
    another network; it is null unless the attack was granted to change the architecture.
    """

    adversary = "crafting server"
    protocol: Protocol
    current: Tensor
    sizes: tuple[int, ...]
    exchange: Exchange
    rebuilt: "Callable[[nn.Module], ServerAccess] | None" = None


@dataclass(frozen=True, eq=False)
class BlindServerAccess(ServerAccess):
    """Chooses the parameters it sends and receives only the sum, through secure aggregation."""

    adversary = "blind crafting server"
