"""What a client or a server can do to give less away."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glasshouse.learning.layout import Layout
from glasshouse.learning.step import PLAIN, Step, Transform, compose


class Defence:
    """Up to five hooks, each of which changes nothing unless overridden."""

    def on_receive(self, model: nn.Module, shape: tuple[int, int, int]) -> str | None:
        """Why a client refuses to train the model it received, for images of `shape`; null if it does not."""
        return None

    def on_batch(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Change a client's training batch, shape (B, C, H, W)."""
        return x

    def training(self) -> Step:
        """Change how a client trains on a batch; unless overridden, by `on_batch` alone."""
        return PLAIN if type(self).on_batch is Defence.on_batch else Transform(self.on_batch)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        """Change what a client sends, shape (P,)."""
        return delta

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        """Change the weighted mean of the updates before the server uses it, shape (P,)."""
        return mean


class Stack(Defence):
    """Several defences, applied in order."""

    def __init__(self, defences: Sequence[Defence], spec: str | None = None) -> None:
        self.defences = tuple(defences)
        self._spec = spec

    def on_receive(self, model: nn.Module, shape: tuple[int, int, int]) -> str | None:
        reasons = (defence.on_receive(model, shape) for defence in self.defences)
        return next((reason for reason in reasons if reason is not None), None)

    def training(self) -> Step:
        return compose(*(defence.training() for defence in self.defences))

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        for defence in self.defences:
            delta = defence.on_update(delta, layout, rng)
        return delta

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        for defence in self.defences:
            mean = defence.on_aggregate(mean, layout, rng)
        return mean

    def __str__(self) -> str:
        """As users write it, where they did."""
        return self._spec or "+".join(type(defence).__name__ for defence in self.defences) or "none"

    @property
    def vets(self) -> bool:
        """Whether any of them looks at what a client receives."""
        return any(type(defence).on_receive is not Defence.on_receive for defence in self.defences)

    @property
    def guards_sum(self) -> bool:
        """Whether any of them changes the sum of the updates."""
        return any(type(defence).on_aggregate is not Defence.on_aggregate for defence in self.defences)
