"""APGD (Croce and Hein 2020): projected gradient ascent that chooses its own step sizes."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glasshouse.attacks.evasion.evasion import Evasion, Originals, Path, Problem
from glasshouse.attacks.evasion.frozen import (
    DLR_CLASSES,
    TARGETED_DLR_CLASSES,
    Frozen,
    Loss,
    cross_entropy,
    dlr,
    targeted_dlr,
)
from glasshouse.data.images import Images
from glasshouse.learning.ball import Ball, Norm

MOMENTUM = 0.75
"""The share of the new direction in a step (alpha); the rest continues the last step."""
ENOUGH = 0.75
"""The share of steps that must raise the loss between two checkpoints (rho)."""


@dataclass(frozen=True, kw_only=True)
class APGDCE(Evasion):
    """Climbs the cross-entropy with momentum, halving the step where the loss stops rising."""

    name = "apgd-ce"
    norm: Norm = "linf"
    steps: int = 100
    restarts: int = 1

    def tries(self, images: Images) -> int:
        return self.restarts

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        start, aims = problem.random_start(originals, number), self.aims(problem, originals, number)
        return AdaptiveAscent(originals, start, self.steps, self.loss, aims)

    def loss(self, logits: Tensor, aims: Tensor) -> Tensor:
        """What it climbs, one value for each image."""
        return cross_entropy(logits, aims)

    def aims(self, problem: Problem, originals: Originals, number: int) -> Tensor:
        """What the loss of try `number` needs to know of each image: its right class."""
        return originals.y


@dataclass(frozen=True, kw_only=True)
class APGDDLR(APGDCE):
    """Climbs the ratio of differences of logits, which saturated models cannot hide, as `apgd-ce` does."""

    name = "apgd-dlr"

    def loss(self, logits: Tensor, aims: Tensor) -> Tensor:
        return dlr(logits, aims)

    def notes(self, images: Images) -> tuple[str, ...]:
        return without_ratio(self.name, images, DLR_CLASSES)


@dataclass(frozen=True, kw_only=True)
class APGDT(APGDCE):
    """Climbs that ratio towards each of the `targets` likeliest wrong classes in turn, as `apgd-ce` does.

    Where there are fewer wrong classes it climbs towards all of them; each gets `restarts` starts.
    """

    name = "apgd-t"
    targets: int = 9

    def tries(self, images: Images) -> int:
        return self.restarts * self._ranks(images)

    def loss(self, logits: Tensor, aims: Tensor) -> Tensor:
        return targeted_dlr(logits, aims)

    def aims(self, problem: Problem, originals: Originals, number: int) -> Tensor:
        """The right class and the wanted one, shape (N, 2)."""
        return problem.pairs(originals, number % self._ranks(problem.images))

    def notes(self, images: Images) -> tuple[str, ...]:
        return without_ratio(self.name, images, TARGETED_DLR_CLASSES)

    def _ranks(self, images: Images) -> int:
        """How many wrong classes there are to climb towards."""
        return min(self.targets, images.classes - 1)


class State(NamedTuple):
    """Where N images stand: here and before, the best so far, and what happened since the last checkpoint."""

    x: Tensor
    before: Tensor
    loss: Tensor
    slope: Tensor
    best_x: Tensor
    best_loss: Tensor
    best_slope: Tensor
    step: Tensor
    rises: Tensor
    last_step: Tensor
    last_best: Tensor

    def only(self, which: Tensor) -> "State":
        """Some of the images."""
        return State(*(part[which] for part in self))


class AdaptiveAscent(Path):
    """Projected steps with momentum, judged at checkpoints; the best example of the way is what remains."""

    _state: State

    def __init__(self, originals: Originals, x: Tensor, steps: int, loss: Loss, aims: Tensor) -> None:
        super().__init__(originals, x, steps)
        self._loss, self._aims = loss, aims
        self._checkpoints, self._last = set(checkpoints(steps)), 0

    def look(self, model: Frozen, number: int) -> Tensor:
        logits, losses, slope = model.look(self.x, self._aims, self._loss)
        if number:
            self._state = _seen(self._state, self.x, losses, slope)
        else:
            self._state = _begin(self.x, losses, slope, 2 * self.originals.ball.eps)
        return logits

    def step(self, number: int) -> None:
        if number in self._checkpoints:
            self._state, self._last = _turn(self._state, number - self._last), number
        self.x = _step(self._state, self.originals.ball, MOMENTUM if number else 1.0)

    def keep(self, which: Tensor) -> None:
        super().keep(which)
        self._aims, self._state = self._aims[which], self._state.only(which)

    @property
    def best(self) -> Tensor:
        return self._state.best_x


def without_ratio(attack: str, images: Images, classes: int) -> tuple[str, ...]:
    """What an attack climbs instead where there are fewer than the `classes` that its ratio needs."""
    if images.classes >= classes:
        return ()
    return (
        f"{attack} climbed the difference of logits alone: with {images.classes} classes its ratio of "
        f"differences, which needs {classes}, does not exist",
    )


def checkpoints(steps: int) -> list[int]:
    """After how many steps their size is judged: shares 0.22, 0.41, ... of all (section 3.1 of the paper)."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    # Rounded, as 0.57 of 100 is otherwise a little more than 57, and its ceiling 58.
    return sorted({math.ceil(round(share * steps, 6)) for share in shares[1:] if share < 1})


def _begin(x: Tensor, losses: Tensor, slope: Tensor, step: float) -> State:
    steps = torch.full((len(x), 1, 1, 1), step)
    none = torch.zeros(len(x))
    return State(x, x, losses, slope, x, losses, slope, steps, none, steps, losses)


def _seen(state: State, x: Tensor, losses: Tensor, slope: Tensor) -> State:
    """The state after a step to `x`."""
    better = losses > state.best_loss
    wide = better[:, None, None, None]
    return state._replace(
        x=x,
        before=state.x,
        loss=losses,
        slope=slope,
        best_x=torch.where(wide, x, state.best_x),
        best_slope=torch.where(wide, slope, state.best_slope),
        best_loss=torch.where(better, losses, state.best_loss),
        rises=state.rises + (losses > state.loss),
    )


def _turn(state: State, since: int) -> State:
    """At a checkpoint: those who rose too rarely or got stuck go back to their best, with half the step."""
    rare = state.rises < ENOUGH * since
    stuck = (state.step == state.last_step).flatten() & (state.best_loss == state.last_best)
    halve = rare | stuck
    wide = halve[:, None, None, None]
    x = torch.where(wide, state.best_x, state.x)
    return state._replace(
        x=x,
        before=torch.where(wide, x, state.before),
        loss=torch.where(halve, state.best_loss, state.loss),
        slope=torch.where(wide, state.best_slope, state.slope),
        step=torch.where(wide, state.step / 2, state.step),
        rises=torch.zeros_like(state.rises),
        last_step=state.step,
        last_best=state.best_loss,
    )


def _step(state: State, ball: Ball, share: float) -> Tensor:
    """Equation 1 of the paper: a projected step, of which only a share is new."""
    aim = ball.project(state.x + state.step * ball.uphill(state.slope.clone()))
    return ball.project(state.x + share * (aim - state.x) + (1 - share) * (state.x - state.before))
