"""Adversarial training (Madry et al. 2018): train on the images that an attack makes of the batch."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.defences.defence import Defence
from glasshouse.learning.ascent import ascend
from glasshouse.learning.step import Step
from glasshouse.options import check_number, check_whole


@dataclass(frozen=True, kw_only=True)
class AdversarialTraining(Defence, Step):
    """Moves each pixel of a training batch by up to `eps`, in `steps` that raise the model's loss.

    Each step is 2.5 `eps` / `steps` long, from a random start. Training takes `steps` + 1 times as long.
    """

    eps: float = 0.1
    steps: int = 7

    def __post_init__(self) -> None:
        check_number("adversarial-training", "eps", self.eps, 0, 1, open_low=True)
        check_whole("adversarial-training", "steps", self.steps, 1)

    def training(self) -> Step:
        return self

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        length, training = 2.5 * self.eps / self.steps, model.training
        moved = ascend(model.eval(), x, y, eps=self.eps, step=length, steps=self.steps, rng=rng)
        model.train(training)
        return moved
