"""Canary clients: each always sends one random direction, with a sign that a coin chose."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.learning.layout import Layout
from glasshouse.learning.seeds import torch_rng


@dataclass(frozen=True)
class Directions:
    """Random unit vectors in the space of the trainable parameters, one for each canary, drawn by `seed`.

    The canaries are the clients from number `first` on.
    """

    seed: int
    count: int
    trainable: int
    first: int = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, canary: int) -> Tensor:
        """The direction of a canary, shape (trainable,)."""
        drawn = torch.randn(self.trainable, generator=torch_rng(self.seed, "direction", canary))
        direction: Tensor = drawn / drawn.norm()
        return direction


@dataclass(frozen=True, eq=False)
class CanaryClients:
    """Clients that each send their direction at the length `norm`, with their sign, for `samples` images."""

    directions: Directions
    signs: np.ndarray
    norm: float
    samples: int

    def __contains__(self, client: int) -> bool:
        return client >= self.directions.first

    def update(self, client: int, layout: Layout) -> Tensor:
        """What the canary `client` sends before its defences change it, shape (P,)."""
        canary = client - self.directions.first
        trained = float(self.signs[canary]) * self.norm * self.directions[canary]
        return torch.cat([trained, torch.zeros(layout.size - layout.trainable)])
