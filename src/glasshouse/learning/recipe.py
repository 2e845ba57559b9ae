"""The numbers of a training run, and the optimiser and schedule they name."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glasshouse.errors import BadInput

HALVED_AFTER = 5
"""Epochs after which the schedule "halving" halves the learning rate."""

LOWERED_AFTER = (3 / 8, 5 / 8, 7 / 8)
"""The shares of the run after which the schedule "steps" lowers the learning rate to a tenth."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained on one data set.

    `batch_size` 0 means all data at once; a last batch of one image, with which batch norm could not be
    trained, joins the batch before it. The momentum of SGD may be Nesterov's (`nesterov`). `schedule` anneals
    the learning rate over the run: "constant", "cosine" down to zero, "halving" every 5 epochs, or "steps":
    to a tenth after 3/8, 5/8 and 7/8 of the run. With the `precision` "bfloat16" the forward and backward
    passes round to it, which is faster on some CPUs; parameters and their steps stay in float32. In the
    `mode` "eval" nothing is dropped out and batch norm goes by its running statistics, which stay as they
    are, as in fine-tuning with frozen statistics. A share `label_smoothing` of every target is spread evenly
    over all classes; with `mix_up` above 0 the images of a batch and their targets are mixed in pairs, by
    weights drawn from Beta(`mix_up`, `mix_up`).
    """

    epochs: int = 1
    batch_size: int = 32
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine", "halving", "steps"] = "constant"
    precision: Literal["float32", "bfloat16"] = "float32"
    mode: Literal["train", "eval"] = "train"
    nesterov: bool = False
    label_smoothing: float = 0.0
    mix_up: float = 0.0

    def __post_init__(self) -> None:
        _require("epochs", self.epochs, self.epochs >= 1, "at least 1")
        _require("batch_size", self.batch_size, self.batch_size >= 0, "at least 1, or 0 for all data at once")
        _require("lr", self.lr, math.isfinite(self.lr) and self.lr > 0, "above 0")
        _require("momentum", self.momentum, 0 <= self.momentum < 1, "in [0, 1)")
        _require("momentum", self.momentum, self.optimiser == "sgd" or not self.momentum, "0 with adam")
        _require("nesterov", self.nesterov, self.momentum > 0 or not self.nesterov, "False without momentum")
        _require("weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0")
        _require("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "in [0, 1)")
        _require("mix_up", self.mix_up, math.isfinite(self.mix_up) and self.mix_up >= 0, "at least 0")

    def batch(self, samples: int) -> int:
        """The batch size on a data set of `samples` images."""
        return min(self.batch_size or samples, samples)

    def last_batch(self, samples: int) -> int:
        """The size of the last batch of an epoch over `samples` images."""
        size = self.batch(samples)
        rest = samples % size or size
        return size + 1 if rest == 1 < size < samples else rest

    def total_steps(self, samples: int) -> int:
        """How many optimiser steps a run over `samples` images takes."""
        return self.epochs * (1 + (samples - self.last_batch(samples)) // self.batch(samples))

    def make_optimiser(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """The optimiser at the recipe's starting learning rate."""
        if self.optimiser == "adam":
            return torch.optim.Adam(parameters, self.lr, weight_decay=self.weight_decay, fused=True)
        return torch.optim.SGD(
            parameters,
            self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            fused=True,
        )

    def lr_at(self, step: int, total: int) -> float:
        """The learning rate of step `step` out of `total`."""
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * step / total))
        if self.schedule == "halving":
            return self.lr * 0.5 ** (step * self.epochs // total // HALVED_AFTER)
        if self.schedule == "steps":
            return self.lr * 0.1 ** sum(step >= round(share * total) for share in LOWERED_AFTER)
        return self.lr

    def rates(self, samples: int) -> list[float]:
        """The learning rate of each step of a run over `samples` images."""
        total = self.total_steps(samples)
        return [self.lr_at(step, total) for step in range(total)]

    def summed_rate(self, samples: int) -> float:
        """The sum of the learning rates of a run over `samples` images."""
        return sum(self.rates(samples))

    def effective_rate(self, samples: int) -> float:
        """The factor between the change of the weights over `samples` images and the mean gradient, for SGD.

        With momentum m a gradient keeps acting: after s more steps by (1 - m^(s+1)) / (1 - m), each taken at
        the rate of the first, which is exact for a constant rate. Nesterov's is a step ahead: m^(s+2).

        >>> Recipe(batch_size=5, lr=1, momentum=0.5).effective_rate(15)  # 1.75 + 1.5 + 1
        4.25
        """
        rates, m, ahead = self.rates(samples), self.momentum, int(self.nesterov)
        return sum(rate * (1 - m ** (len(rates) - step + ahead)) / (1 - m) for step, rate in enumerate(rates))


def _require(key: str, value: object, holds: bool, rule: str) -> None:
    if not holds:
        raise BadInput(f"{key} = {value!r} is out of range; it must be {rule}")
