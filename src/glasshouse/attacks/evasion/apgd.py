"""APGD (Croce and Hein 2020): projected gradient ascent that chooses its own step sizes."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.evasion.attempt import attempt, in_turn, starts
from glasshouse.attacks.evasion.frozen import Frozen, Loss, fooled
from glasshouse.attacks.evasion.limits import Assault, Limit, check_limits
from glasshouse.attacks.evasion.losses import cross_entropy, dlr
from glasshouse.data.images import Images
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball, Norm
from glasshouse.options import check_whole

MOMENTUM = 0.75
"""The share of the new direction in a step (alpha); the rest goes on in the last one."""
ENOUGH = 0.75
"""The share of steps that must raise the loss between two checkpoints (rho)."""


@dataclass(frozen=True, kw_only=True)
class APGDCE(Attack):
    """Climbs the cross-entropy with momentum, halving the step wherever that stops to help."""

    eps: Limit = None
    norm: Norm = "linf"
    steps: int = 100
    restarts: int = 1
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        _check("apgd-ce", self.eps, self.norm, self.steps, self.restarts)

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        return attempt(self, access, knowledge, rng)

    def assault(self, frozen: Frozen, images: Images, seed: int) -> Assault:
        """The attack on some of `images`; its random numbers follow from `seed` and an image's position."""
        return _assault(frozen, images, seed, cross_entropy, self.steps, self.restarts)


@dataclass(frozen=True, kw_only=True)
class APGDDLR(Attack):
    """Climbs the ratio of differences of logits, which saturated models cannot hide, as `apgd-ce` does."""

    eps: Limit = None
    norm: Norm = "linf"
    steps: int = 100
    restarts: int = 1
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        _check("apgd-dlr", self.eps, self.norm, self.steps, self.restarts)

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        return attempt(self, access, knowledge, rng)

    def assault(self, frozen: Frozen, images: Images, seed: int) -> Assault:
        """The attack on some of `images`; its random numbers follow from `seed` and an image's position."""
        return _assault(frozen, images, seed, dlr, self.steps, self.restarts)


class State(NamedTuple):
    """Where N images stand: here and before, the best so far, and what happened since the last checkpoint."""

    place: Tensor
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


def climb(frozen: Frozen, ball: Ball, x: Tensor, y: Tensor, loss: Loss, steps: int) -> tuple[Tensor, Tensor]:
    """Examples reached from `x`, and whether they fool the model about `y`.

    An image that is fooled takes no further step; of the others the best example so far is returned.
    """
    made, fell = x.clone(), torch.zeros(len(x), dtype=torch.bool)
    turns = set(checkpoints(steps))
    state, since = None, 0
    for number in range(steps + 1):
        logits, losses, slope = frozen.look(x, y, loss)
        state = _begin(x, losses, slope, 2 * ball.eps) if state is None else _seen(state, x, losses, slope)
        wrong = fooled(logits, y)
        if wrong.any():
            made[state.place[wrong]], fell[state.place[wrong]] = x[wrong], True
            state, ball, y = state.only(~wrong), ball[~wrong], y[~wrong]
        if number == steps or not len(y):
            break
        if number in turns:
            state, since = _turn(state, number - since), number
        x = _step(state, ball, MOMENTUM if number else 1.0)
    assert state is not None
    made[state.place] = state.best_x
    return made, fell


def checkpoints(steps: int) -> list[int]:
    """When steps are judged: at shares p of all, 0.22 first, then ever sooner (section 3.1 of the paper)."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    # Rounded, as 0.57 of 100 is otherwise a little more than 57, and its ceiling 58.
    return sorted({math.ceil(round(share * steps, 6)) for share in shares[1:] if share < 1})


def _begin(x: Tensor, losses: Tensor, slope: Tensor, step: float) -> State:
    steps = torch.full((len(x), 1, 1, 1), step)
    none = torch.zeros(len(x))
    return State(torch.arange(len(x)), x, x, losses, slope, x, losses, slope, steps, none, steps, losses)


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


def _assault(frozen: Frozen, images: Images, seed: int, loss: Loss, steps: int, restarts: int) -> Assault:
    def assault(ball: Ball, y: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        def go(number: int, ball: Ball, y: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            x = starts(ball, images.x.shape, positions[which], seed, number)
            return climb(frozen, ball, x, y, loss, steps)

        return in_turn(restarts, ball, y, go)

    return assault


def _check(attack: str, eps: object, norm: object, steps: object, restarts: object) -> None:
    check_limits(attack, eps, norm)
    check_whole(attack, "steps", steps, 1)
    check_whole(attack, "restarts", restarts, 1)
