"""The numbers of a training run, and the optimiser and schedule they name.

They can be read and checked without torch, so that what is wrong in a configuration shows at once.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from glasshouse.errors import BadInput, quoted
from glasshouse.learning.augment_options import named_augmentations
from glasshouse.learning.optimisers import OPTIONS, UNSET, Optimiser, check_options, make_optimiser
from glasshouse.learning.schedules import Schedule, factor

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained on one data set.

    `batch_size` 0 means all data at once; a last batch of one image, with which batch norm could not be
    trained, joins the batch before it. The `optimiser` begins every run without a memory. SGD and RMSprop
    take `momentum`, which of SGD may be Nesterov's (`nesterov`), Adam and AdamW their `betas`, RMSprop its
    `alpha`, all but SGD an `eps`; those that are null are torch's.

    `schedule` anneals the learning rate: "constant", "cosine" down to zero, "halving" every 5 epochs,
    "steps": to a tenth after 3/8, 5/8 and 7/8 of the way, or "step": by `gamma`, null for a tenth, every
    `step_size` epochs. Over `warmup` epochs before it the rate rises linearly. Where `rounds` are given, all
    of that is meant of the rounds of a federation in place of the epochs of a run: the rate is then the same
    throughout a run, and `in_round` says which.

    With the `precision` "bfloat16" the forward and backward passes round to it, which is faster on some CPUs;
    parameters and their steps stay in float32. In the `mode` "eval" nothing is dropped out and batch norm
    goes by its running statistics, which stay as they are, as in fine-tuning with frozen statistics. A share
    `label_smoothing` of every target is spread evenly over all classes; with `mix_up` above 0 the images of a
    batch and their targets are mixed in pairs, by weights drawn from Beta(`mix_up`, `mix_up`). Images are
    changed at random as `augment` says before (`learning.augment`). A gradient of a batch that is longer than
    `clip_grad_norm`, all tensors together, is cut to that length before the optimiser steps; 0 for never.
    """

    epochs: int = 1
    batch_size: int = 32
    optimiser: Optimiser = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    precision: Literal["float32", "bfloat16"] = "float32"
    mode: Literal["train", "eval"] = "train"
    nesterov: bool = False
    label_smoothing: float = 0.0
    mix_up: float = 0.0
    betas: tuple[float, float] | None = None
    alpha: float | None = None
    eps: float | None = None
    step_size: int | None = None
    gamma: float | None = None
    warmup: int = 0
    rounds: int = 0
    clip_grad_norm: float = 0.0
    augment: str = ""

    def __post_init__(self) -> None:
        for key, kinds in _CHOICES.items():
            value = getattr(self, key)
            if value not in kinds:
                raise BadInput(f"{key} = {quoted(value)} is unknown; it must be one of {', '.join(kinds)}")
        _require("epochs", self.epochs, self.epochs >= 1, "at least 1")
        _require("batch_size", self.batch_size, self.batch_size >= 0, "at least 1, or 0 for all data at once")
        _require("lr", self.lr, math.isfinite(self.lr) and self.lr > 0, "above 0")
        self._check_optimiser()
        self._check_schedule()
        _require("weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0")
        _require("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "in [0, 1)")
        _require("mix_up", self.mix_up, math.isfinite(self.mix_up) and self.mix_up >= 0, "at least 0")
        clip = self.clip_grad_norm
        _require("clip_grad_norm", clip, math.isfinite(clip) and clip >= 0, "above 0, or 0 for never")
        named_augmentations(self.augment)

    def _check_optimiser(self) -> None:
        _require("momentum", self.momentum, 0 <= self.momentum < 1, "in [0, 1)")
        check_options(self)
        _require("nesterov", self.nesterov, self.momentum > 0 or not self.nesterov, "False without momentum")
        if self.betas is not None:
            both = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
            _require("betas", self.betas, both, "two numbers in [0, 1)")
        if self.alpha is not None:
            _require("alpha", self.alpha, 0 <= self.alpha < 1, "in [0, 1)")
        if self.eps is not None:
            _require("eps", self.eps, math.isfinite(self.eps) and self.eps > 0, "above 0")

    def _check_schedule(self) -> None:
        _require("rounds", self.rounds, self.rounds >= 0, "at least 1, or 0 where epochs are meant")
        units, unit = (self.rounds, "rounds") if self.rounds else (self.epochs, "epochs")
        fewer = f"at least 0 and below the {units} {unit}"
        _require("warmup", self.warmup, 0 <= self.warmup < units, fewer)
        for key in ("step_size", "gamma"):
            if getattr(self, key) is not None and self.schedule != "step":
                raise BadInput(
                    f"{key} = {getattr(self, key)!r} does not go with schedule = {self.schedule!r}; "
                    'leave it out, or take the schedule "step"'
                )
        if self.schedule == "step":
            if self.step_size is None:
                raise BadInput(
                    'step_size is missing, and the schedule "step" lowers the rate whenever so many '
                    f"{unit} are over; give it, a whole number of at least 1"
                )
            _require("step_size", self.step_size, self.step_size >= 1, "at least 1")
            _require("gamma", self.gamma, self.gamma is None or 0 < self.gamma <= 1, "above 0 and at most 1")

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

    def make_optimiser(self, parameters: "Iterable[torch.Tensor]") -> "torch.optim.Optimizer":
        """The optimiser at the recipe's starting learning rate."""
        return make_optimiser(self, parameters)

    def lr_at(self, step: int, total: int) -> float:
        """The learning rate of step `step` out of `total`; the largest one where rounds decide it."""
        return self.lr if self.rounds else self.lr * self._factor(step, total, self.epochs)

    def in_round(self, number: int | None) -> "Recipe":
        """The recipe of round `number`, counted from 0; null for the one with the largest rate.

        After the last of `rounds` the rate stays. Where rounds do not decide it, the recipe is the same.
        """
        if not self.rounds:
            return self
        rate = self.lr
        if number is not None:
            place = min(number, self.rounds - 1)
            rate = max(rate * self._factor(place, self.rounds, self.rounds), math.ulp(0.0))
        return dataclasses.replace(self, lr=rate, rounds=0, **_CONSTANT)

    def plain(self) -> "Recipe":
        """The recipe of whoever takes one step of plain SGD on all data."""
        constant = {} if self.rounds else _CONSTANT
        return dataclasses.replace(
            self,
            epochs=1,
            batch_size=0,
            optimiser="sgd",
            **(UNSET | constant),
        )

    def _factor(self, place: int, total: int, units: int) -> float:
        return factor(
            self.schedule,
            place,
            total,
            units,
            warmup=self.warmup,
            step_size=self.step_size,
            gamma=self.gamma,
        )

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


_CHOICES = {
    "optimiser": tuple(OPTIONS),
    "schedule": get_args(Schedule),
    "precision": ("float32", "bfloat16"),
    "mode": ("train", "eval"),
}

_CONSTANT: dict[str, Any] = {"schedule": "constant", "warmup": 0, "step_size": None, "gamma": None}
"""A learning rate that stays."""
