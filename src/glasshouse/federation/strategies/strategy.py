"""The hooks by which federated algorithms differ."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from torch import Tensor

from glasshouse.federation.updates import Delivery
from glasshouse.learning.fit import Objective
from glasshouse.learning.recipe import Recipe


class Strategy(ABC):
    """A federated algorithm: whom to ask, what to send along, what to add to their loss, how to combine."""

    @abstractmethod
    def choose(self, round_number: int, clients: int, count: int, rng: np.random.Generator) -> list[int]:
        """Which `count` of the `clients` take part in this round."""

    def local(self, recipe: Recipe) -> Recipe:
        """How a client trains, given the recipe of the setting."""
        return recipe

    def brief(self, round_number: int, sent: Tensor) -> Any:
        """What goes to the clients beside the model `sent`."""
        return None

    def objective(self, payload: Any) -> Objective | None:
        """The loss term a client adds, given the payload of `brief`; runs on the client."""
        return None

    @abstractmethod
    def combine(self, sent: Tensor, delivery: Delivery) -> Tensor:
        """The next global model, from the one sent and what the channel delivered."""

    def state(self) -> dict[str, Tensor]:
        """What the server must remember between rounds."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:  # noqa: B027, most strategies remember nothing
        """Continue from what `state` returned."""
