"""Differential privacy for whole clients: clipped updates, and noise on their mean (McMahan et al. 2018)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.defences.defence import Defence
from glasshouse.defences.perturbation import Clipping
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout


@dataclass(frozen=True, kw_only=True)
class DifferentialPrivacy(Defence):
    """Clips each update to the length `norm` (L2), and adds normal noise to the mean of `clients` of them.

    The noise has the standard deviation `noise` * `norm` / `clients`, for clients that have equal weights in
    the mean; where they differ in their samples the largest has more. Whoever sums the updates must add it
    before the server sees the mean. BatchNorm statistics travel as they are.
    """

    norm: float = 1.0
    noise: float = 1.0
    clients: int = 10

    def __post_init__(self) -> None:
        Clipping(norm=self.norm)
        if not 0 <= self.noise < 1e6:
            raise BadInput(
                f"differential-privacy noise = {self.noise} is out of range; it must lie from 0 to below 1e6"
            )
        if not (isinstance(self.clients, int) and self.clients >= 1):
            raise BadInput(
                f"differential-privacy clients = {self.clients} is out of range; "
                "it must be a whole number of at least 1"
            )

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        return Clipping(norm=self.norm).on_update(delta, layout, rng)

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        std = self.noise * self.norm / self.clients
        noise = torch.randn(layout.trainable, generator=rng)
        return torch.cat([mean[: layout.trainable] + std * noise, mean[layout.trainable :]])
