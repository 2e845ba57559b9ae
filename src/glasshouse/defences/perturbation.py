"""Perturbing the update before it leaves the client.

Each acts on the trainable part of the update; BatchNorm statistics travel as they are, because noise can make
a variance negative.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.defences.defence import Defence
from glasshouse.learning.layout import Layout
from glasshouse.options import check_number


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Defence):
    """Adds independent normal noise of standard deviation `std` to every entry of the update."""

    std: float = 1e-2

    def __post_init__(self) -> None:
        check_number("gaussian-noise", "std", self.std, 0, 1e6, open_low=True, open_high=True)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        noise = torch.randn(layout.trainable, generator=rng)
        return _changed(delta, layout, delta[: layout.trainable] + self.std * noise)


@dataclass(frozen=True, kw_only=True)
class LaplacianNoise(Defence):
    """Adds independent Laplace noise of scale `scale` to every entry of the update."""

    scale: float = 1e-2

    def __post_init__(self) -> None:
        check_number("laplacian-noise", "scale", self.scale, 0, 1e6, open_low=True, open_high=True)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        # The difference of two exponential variables is a Laplace variable.
        first, second = torch.empty(2, layout.trainable).exponential_(generator=rng)
        return _changed(delta, layout, delta[: layout.trainable] + self.scale * (first - second))


@dataclass(frozen=True, kw_only=True)
class Pruning(Defence):
    """Sends only the largest entries of each tensor of the update; `fraction` of them become zero."""

    fraction: float = 0.7

    def __post_init__(self) -> None:
        check_number("pruning", "fraction", self.fraction, 0, 1, open_high=True)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        pruned = delta.clone()
        kept = 0
        for tensor in layout.named(pruned).values():
            if kept == layout.trainable:
                break
            kept += tensor.numel()
            entries = tensor.view(-1)
            drop = int(self.fraction * entries.numel())
            entries[entries.abs().topk(drop, largest=False).indices] = 0
        return pruned


@dataclass(frozen=True, kw_only=True)
class Clipping(Defence):
    """Scales an update that is longer than `norm` (L2) down to that length."""

    norm: float = 1.0

    def __post_init__(self) -> None:
        check_number("clipping", "norm", self.norm, 0, 1e6, open_low=True, open_high=True)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        trained = delta[: layout.trainable]
        factor = min(1.0, self.norm / max(float(trained.norm()), 1e-12))
        return _changed(delta, layout, trained * factor)


def _changed(delta: Tensor, layout: Layout, trained: Tensor) -> Tensor:
    return torch.cat([trained, delta[layout.trainable :]])
