"""What a client or a server can do to give less away."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glasshouse.learning.fit import Hardening, Transform
from glasshouse.learning.layout import Layout


class Defence:
    """Up to five hooks, each of which changes nothing unless overridden."""

    def on_receive(self, model: nn.Module, shape: tuple[int, int, int]) -> str | None:
        """Why a client refuses to train the model it received, for images of `shape`; null if it does not."""
        return None

    def on_batch(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Change a client's training batch, shape (B, C, H, W)."""
        return x

    def harden(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        """Change a training batch in the light of the model that is being trained, here in eval mode."""
        return x

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        """Change what a client sends, shape (P,)."""
        return delta

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        """Change the weighted mean of the updates before the server uses it, shape (P,)."""
        return mean


class Stack(Defence):
    """Several defences, applied in order."""

    def __init__(self, defences: Sequence[Defence]) -> None:
        self.defences = tuple(defences)

    def on_receive(self, model: nn.Module, shape: tuple[int, int, int]) -> str | None:
        reasons = (defence.on_receive(model, shape) for defence in self.defences)
        return next((reason for reason in reasons if reason is not None), None)

    def on_batch(self, x: Tensor, rng: torch.Generator) -> Tensor:
        for defence in self.defences:
            x = defence.on_batch(x, rng)
        return x

    def harden(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        for defence in self.defences:
            x = defence.harden(model, x, y, rng)
        return x

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        for defence in self.defences:
            delta = defence.on_update(delta, layout, rng)
        return delta

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        for defence in self.defences:
            mean = defence.on_aggregate(mean, layout, rng)
        return mean

    @property
    def vets(self) -> bool:
        """Whether any of them looks at what a client receives."""
        return any(type(defence).on_receive is not Defence.on_receive for defence in self.defences)

    @property
    def guards_sum(self) -> bool:
        """Whether any of them changes the sum of the updates."""
        return any(type(defence).on_aggregate is not Defence.on_aggregate for defence in self.defences)

    def batch_transform(self) -> Transform | None:
        """The transformation of training batches, or nothing where no defence has one."""
        touched = any(type(defence).on_batch is not Defence.on_batch for defence in self.defences)
        return self.on_batch if touched else None

    def hardening(self) -> Hardening | None:
        """What makes training batches harder, or nothing where no defence does."""
        touched = any(type(defence).harden is not Defence.harden for defence in self.defences)
        return self.harden if touched else None
