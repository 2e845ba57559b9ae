"""Following an objective down from one start: the optimiser's step, the box, noise, and when to stop."""

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.evidence.reconstruction import Snapshot
from glasshouse.learning.schedules import LOWERED_AFTER

Objective = Callable[[Tensor, Tensor | None, float], Tensor]
"""From images, soft labels (null where labels are known) and the share of the way to a scalar."""

SCHEDULES = ("constant", "steps", "cosine")
OPTIMISERS = ("adam", "adamw", "sgd", "lbfgs")

PROGRESS = 1e-4
"""How much lower, relatively, the objective must fall to count as progress."""

SHOWN = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8)
"""The shares of the way at which the images are kept for the page."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a descent steps: what torch's `optimiser` is told, and what happens around its steps.

    Adam and SGD may follow the sign of the slope (`signed`), pixels may be held in [0, 1] (`boxed`), and
    noise of `langevin` times the learning rate be added. A share `patience` of the steps without progress
    counts as a plateau, which skips to the next fall of the learning rate, or ends the descent; 0 never does.
    """

    optimiser: str = "adam"
    lr: float = 0.1
    steps: int = 4800
    schedule: str = "steps"
    warmup: int = 0
    signed: bool = True
    boxed: bool = True
    langevin: float = 0.0
    patience: float = 0.0

    def make(self, variables: list[Tensor]) -> torch.optim.Optimizer:
        """The optimiser of `variables`."""
        if self.optimiser == "lbfgs":
            return torch.optim.LBFGS(variables, self.lr, max_iter=20, history_size=100)
        if self.optimiser == "sgd":
            return torch.optim.SGD(variables, self.lr, momentum=0.9, nesterov=True)
        kind = torch.optim.AdamW if self.optimiser == "adamw" else torch.optim.Adam
        return kind(variables, self.lr)

    def rate(self, place: int) -> float:
        """The learning rate of the step at `place`.

        >>> [round(Pace(steps=8).rate(place), 4) for place in range(8)]
        [0.1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.0001]
        """
        warm = min(1.0, (place + 1) / self.warmup) if self.warmup else 1.0
        if self.schedule == "cosine":
            return warm * self.lr * 0.5 * (1 + math.cos(math.pi * place / self.steps))
        if self.schedule == "steps":
            return warm * self.lr * 0.1 ** sum(place >= round(share * self.steps) for share in LOWERED_AFTER)
        return warm * self.lr

    def next_fall(self, place: int) -> int:
        """The step of the next fall of the learning rate after `place`, or the end."""
        falls = [round(share * self.steps) for share in LOWERED_AFTER] if self.schedule == "steps" else []
        return min([fall for fall in falls if fall > place], default=self.steps)


class Descent:
    """Images on their way down from `x`, shape (copies, n, C, H, W), with soft labels where they are sought.

    `image` and `soft` are the best so far, by the objective, whose value is `lowest`. Where the objective
    changes on the way, `phase` says, at a share of the way, which one is in force: values of different ones
    do not compare, so with each the best begins anew.
    """

    def __init__(
        self,
        objective: Objective,
        x: Tensor,
        soft: Tensor | None,
        pace: Pace,
        rng: torch.Generator,
        phase: Callable[[float], Hashable],
    ) -> None:
        self._objective, self._pace, self._rng = objective, pace, rng
        self._phase, self._current = phase, phase(0.0)
        self.x = x.clone().requires_grad_()
        self._soft = None if soft is None else soft.clone().requires_grad_()
        self._variables = [self.x] if self._soft is None else [self.x, self._soft]
        self._optimiser = pace.make(self._variables)
        self.image, self.soft, self.lowest = x.clone(), soft, math.inf
        self.place, self.snapshots = 0, list[Snapshot]()
        self._taken, self._since, self._milestone = 0, 0, math.inf
        self._began = time.perf_counter()

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.place >= self._pace.steps

    def advance(self) -> None:
        """One step of the optimiser."""
        pace, rate = self._pace, self._pace.rate(self.place)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step(self._evaluate)
        with torch.no_grad():
            if pace.langevin:
                self.x += pace.langevin * rate * torch.randn(self.x.shape, generator=self._rng)
            if pace.boxed:
                self.x.clamp_(0, 1)
        self._note()
        self.place, self._taken = self.place + 1, self._taken + 1
        self._watch_for_a_plateau()

    def finish(self) -> None:
        """Count the images after the last step too, and keep the best for the page."""
        with torch.no_grad():
            finite = bool(torch.isfinite(self.x).all())
        if finite:
            self._evaluate()
        self._keep()

    def _evaluate(self) -> float:
        """The objective here, with its slope left in the variables; the best images are kept."""
        share = min(1.0, self.place / self._pace.steps)
        value = self._objective(self.x, self._soft, share)
        slopes = torch.autograd.grad(value, self._variables)
        for variable, slope in zip(self._variables, slopes):
            variable.grad = slope
        if self._pace.signed:
            self.x.grad = slopes[0].sign()
        reached = value.item()
        if self._phase(share) != self._current and math.isfinite(reached):
            self._current, self.lowest, self._milestone = self._phase(share), math.inf, math.inf
        if reached < self.lowest:
            self.lowest, self.image = reached, self.x.detach().clone()
            self.soft = None if self._soft is None else self._soft.detach().clone()
        return reached

    def _watch_for_a_plateau(self) -> None:
        pace = self._pace
        if not torch.isfinite(self.x).all():
            self.place = pace.steps  # a second-order step may leave all bounds; what was best stays
        if not pace.patience:
            return
        if self.lowest < self._milestone * (1 - PROGRESS) or self._milestone == math.inf:
            self._milestone, self._since = self.lowest, 0
            return
        self._since += 1
        if self._since >= max(20, round(pace.patience * pace.steps)):
            self.place, self._since = pace.next_fall(self.place), 0

    def _note(self) -> None:
        """Keep the images for the page at each of the places `SHOWN`."""
        if any(self.place == round(share * self._pace.steps) for share in SHOWN):
            self._keep()

    def _keep(self) -> None:
        seconds = time.perf_counter() - self._began
        self.snapshots.append(Snapshot(self._taken, seconds, self.lowest, self.image[0].clamp(0, 1)))
