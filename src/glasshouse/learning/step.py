"""What training does with one batch: from its images to the gradients that the optimiser gets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.learning.recipe import Recipe


class BatchLoss(Protocol):
    """The mean loss of a batch: cross-entropy, which is all where it is `plain`, and what steps add."""

    @property
    def plain(self) -> bool: ...

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """That of images of shape (B, C, H, W) with labels (B,)."""
        ...


class Step:
    """Plain training. A subclass overrides what it changes; several of them `compose`.

    `rng` is the training run's generator for all that its steps draw. A step that is `per_sample` computes
    the gradient of a batch from those of its samples.
    """

    per_sample: ClassVar[bool] = False

    def started(self, model: nn.Module, samples: int, recipe: Recipe) -> "Step":
        """The step for one training run on `samples` images."""
        return self

    @property
    def public_size(self) -> int | None:
        """By how many samples each is drawn into a batch by itself; null: batches are shuffled."""
        return None

    @property
    def adds_loss(self) -> bool:
        """Whether the loss is more than cross-entropy."""
        return type(self).loss is not Step.loss

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        """The images to learn from in place of `x`, shape (B, C, H, W).

        `model` is in train mode, and in train mode again afterwards.
        """
        return x

    def loss(self, model: nn.Module, logits: Tensor, y: Tensor) -> Tensor | None:
        """A scalar to add to the cross-entropy of a batch with these `logits` and labels, or nothing."""
        return None

    def backward(self, model: nn.Module, x: Tensor, y: Tensor, loss: BatchLoss, rng: torch.Generator) -> None:
        """Leave the gradient of a prepared batch in the parameters, which have none before.

        Override this to compute it in another way, as from each sample's own gradient.
        """
        loss(x, y).backward()

    def steer(self, parameters: list[nn.Parameter], rng: torch.Generator) -> None:
        """Change the gradients of a batch in place, before the optimiser steps."""


PLAIN = Step()


def computes_gradient(step: Step) -> bool:
    """Whether `step`, once it is started, computes the gradient of a batch in a way of its own."""
    parts = step.steps if isinstance(step, _Composed) else (step,)
    return any(part.per_sample or type(part).backward is not Step.backward for part in parts)


@dataclass(frozen=True)
class Transform(Step):
    """Replaces the images of each batch by `change(x, rng)`, whatever the model and the labels."""

    change: Callable[[Tensor, torch.Generator], Tensor]

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        return self.change(x, rng)


def compose(*steps: Step) -> Step:
    """One step that does what all `steps` do, in their order; only one of them may override `backward`."""
    parts = [part for step in steps for part in (step.steps if isinstance(step, _Composed) else (step,))]
    changing = tuple(part for part in parts if type(part) is not Step)
    computing = [type(part).__name__ for part in changing if computes_gradient(part)]
    if len(computing) > 1:
        raise BadInput(
            f"{' and '.join(computing)} both compute the gradient of a batch, which only one can; "
            "leave one of them out"
        )
    return _Composed(changing) if len(changing) > 1 else next(iter(changing), PLAIN)


@dataclass(frozen=True)
class _Composed(Step):
    steps: tuple[Step, ...]

    def started(self, model: nn.Module, samples: int, recipe: Recipe) -> Step:
        return _Composed(tuple(step.started(model, samples, recipe) for step in self.steps))

    @property
    def public_size(self) -> int | None:
        return next((step.public_size for step in self.steps if step.public_size is not None), None)

    @property
    def adds_loss(self) -> bool:
        return any(step.adds_loss for step in self.steps)

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        for step in self.steps:
            x = step.prepare(model, x, y, rng)
        return x

    def loss(self, model: nn.Module, logits: Tensor, y: Tensor) -> Tensor | None:
        terms = [term for step in self.steps if (term := step.loss(model, logits, y)) is not None]
        return torch.stack(terms).sum() if terms else None

    def backward(self, model: nn.Module, x: Tensor, y: Tensor, loss: BatchLoss, rng: torch.Generator) -> None:
        computing = (step for step in self.steps if type(step).backward is not Step.backward)
        next(computing, PLAIN).backward(model, x, y, loss, rng)

    def steer(self, parameters: list[nn.Parameter], rng: torch.Generator) -> None:
        for step in self.steps:
            step.steer(parameters, rng)
