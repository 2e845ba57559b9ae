"""The hooks by which federated algorithms differ."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.learning.step import PLAIN, Step

Tensors = Mapping[str, Tensor]
"""Tensors by name: what travels with a model, or what is remembered."""


@dataclass(frozen=True, eq=False)
class ServerState:
    """What the server has in round `number`: the global model `vector`, shape (P,), and its memory.

    It knows the task and how many samples each client holds, has a `module` to compute in, and may hold
    `images`, which no client trains on and no test uses.
    """

    module: nn.Module
    layout: Layout
    shape: tuple[int, int, int]
    classes: int
    sizes: tuple[int, ...]
    images: Images
    seed: int
    number: int
    vector: Tensor
    memory: Tensors = field(default_factory=dict)

    def rng(self, purpose: str) -> np.random.Generator:
        """NumPy's random numbers for one purpose in this round."""
        return numpy_rng(self.seed, purpose, self.number)

    def torch_rng(self, purpose: str) -> torch.Generator:
        """Torch's random numbers for one purpose in this round."""
        return torch_rng(self.seed, purpose, self.number)

    def derive(self, purpose: str) -> int:
        """A seed for one purpose in this round."""
        return derive(self.seed, purpose, self.number)


@dataclass(frozen=True, eq=False)
class LocalTask:
    """A client's part of a round: what it received, what it holds, and `fit` to train with.

    `fit` trains `module`, which holds the weights of `sent`, as recipe and defences say, with what the
    strategy adds to a step, and returns the change that may leave the client, shape (P,). `kept` is what the
    client remembers of its last round, empty in its first; `payload` what the server sent with the model.
    """

    module: nn.Module
    layout: Layout
    sent: Tensor
    images: Images
    recipe: Recipe
    payload: Tensors
    kept: Tensors
    fit: Callable[[Step], Tensor]
    seed: int


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client answers: the change of the model, shape (P,), and what else the strategy asks for.

    `summed`, one row, is needed only as a weighted sum over clients, like the change, and travels with it;
    `kept` stays with the client for its next round.
    """

    delta: Tensor
    summed: Tensor | None = None
    kept: Tensors = field(default_factory=dict)


class Strategy(ABC):
    """A federated algorithm: which clients train, what they receive, how they train, how to combine.

    `report` and `train` run on the client, the rest on the server. A strategy is a value: what the server
    remembers from one round to the next is in its memory. One that `needs_updates` looks at single updates
    and cannot work behind secure aggregation; one that `sums_more` has clients fill `Reply.summed`; one that
    `needs_images` uses images of the server. `client_reports` names what clients report with their updates,
    in the clear whatever the channel, and `server_payload` what all of them receive with the model.
    """

    needs_updates: ClassVar[bool] = False
    sums_more: ClassVar[bool] = False
    needs_images: ClassVar[bool] = False
    client_reports: ClassVar[tuple[str, ...]] = ()
    server_payload: ClassVar[tuple[str, ...]] = ()

    @property
    def sends_gradients(self) -> bool:
        """Whether clients, which take one step of plain SGD, send its gradient and not the rounded change."""
        return False

    def local(self, recipe: Recipe) -> Recipe:
        """The recipe of a client, from that of the setting."""
        return recipe

    def begin(self, server: ServerState) -> Tensors:
        """The server's memory before the first round; refuses a task that the strategy cannot do."""
        return {}

    @abstractmethod
    def choose(self, server: ServerState, count: int) -> list[int]:
        """Which `count` of the clients take part in this round."""

    def brief(self, server: ServerState) -> Tensors:
        """What the clients receive with the model."""
        return {}

    def report(self, module: nn.Module, images: Images) -> Tensors:
        """What a client reports of its images; `module` is the model sent, in eval mode."""
        return {}

    def train(self, task: LocalTask) -> Reply:
        """A client's part of the round."""
        return Reply(task.fit(PLAIN))

    @abstractmethod
    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        """The next global model, shape (P,), and the server's next memory."""


def byte_count(tensors: Tensors) -> int:
    """How many bytes `tensors` take on the wire."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(target || softmax(logits)), the mean over rows, for probabilities and logits of (N, classes)."""
    return F.kl_div(logits.log_softmax(1), target, reduction="batchmean")
