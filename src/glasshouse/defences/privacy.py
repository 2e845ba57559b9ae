"""Differential privacy for whole clients: clipped updates, and noise on their mean (McMahan et al. 2018)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.defences.defence import Defence
from glasshouse.defences.perturbation import Clipping
from glasshouse.learning.layout import Layout
from glasshouse.options import check_number, check_whole


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
        check_number("differential-privacy", "noise", self.noise, 0, 1e6, open_high=True)
        check_whole("differential-privacy", "clients", self.clients, 1)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        return Clipping(norm=self.norm).on_update(delta, layout, rng)

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        std = self.noise * self.norm / self.clients
        noise = torch.randn(layout.trainable, generator=rng)
        return torch.cat([mean[: layout.trainable] + std * noise, mean[layout.trainable :]])
