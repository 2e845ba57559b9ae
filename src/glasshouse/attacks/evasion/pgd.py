"""Projected gradient descent (Madry et al. 2018) and iterative FGSM (Kurakin et al. 2017)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.evasion.attempt import attempt, in_turn, starts
from glasshouse.attacks.evasion.frozen import Frozen, Loss, fooled
from glasshouse.attacks.evasion.limits import Assault, Limit, check_limits, is_grey
from glasshouse.attacks.evasion.losses import attraction, cross_entropy
from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball, Norm
from glasshouse.options import check_whole

STEPS = {"grey": 40, "colour": 20}
TRAVEL = {"grey": 4 / 3, "colour": 2.5}
"""All steps together, in units of eps: 40 of 0.01 for grey images at 0.3, 20 of 0.0025 for colour at 0.02."""


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """Climbs the loss in small steps from a random image within `eps`, and again where that fails.

    Without `steps` it takes 40 for grey images and 20 for colour ones; without a `step` these cover 4/3 eps
    for grey images, 5/2 eps for colour ones and in "l2". `start` is "random" or "image". With `targeted` it
    climbs towards the `targets` most likely wrong classes instead, one after the other.
    """

    eps: Limit = None
    norm: Norm = "linf"
    steps: int | None = None
    step: float | None = None
    start: Literal["random", "image"] = "random"
    restarts: int = 1
    targeted: bool = False
    targets: int = 3
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        check_limits("pgd", self.eps, self.norm)
        check_steps("pgd", self.steps, self.step)
        check_whole("pgd", "restarts", self.restarts, 1)
        check_whole("pgd", "targets", self.targets, 1)
        if self.start not in ("random", "image"):
            raise BadInput(f'pgd start = {self.start!r} is unknown; it must be "random" or "image"')
        if self.start == "image" and self.restarts > 1:
            raise BadInput(
                f'pgd restarts = {self.restarts} repeat one path from the image; use start="random"'
            )

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        return attempt(self, access, knowledge, rng)

    def assault(self, frozen: Frozen, images: Images, seed: int) -> Assault:
        """The attack on some of `images`; its random numbers follow from `seed` and an image's position."""
        steps = self.steps or STEPS["grey" if is_grey(images) else "colour"]
        travel = TRAVEL["grey" if is_grey(images) and self.norm == "linf" else "colour"]

        def assault(ball: Ball, y: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            step = self.step or travel * ball.eps / steps
            ranks = min(self.targets, images.classes - 1) if self.targeted else 1
            likely = _wrong_classes(frozen.answers(ball.centre), y) if self.targeted else None

            def go(number: int, ball: Ball, y: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
                restart, rank = divmod(number, ranks)
                x = ball.centre
                if self.start == "random":
                    x = starts(ball, images.x.shape, positions[which], seed, restart)
                aims, loss = (y, cross_entropy) if likely is None else (likely[which, rank], attraction)
                return climb(frozen, ball, x, y, aims, loss, step=step, steps=steps)

            return in_turn(self.restarts * ranks, ball, y, go)

        return assault


@dataclass(frozen=True, kw_only=True)
class IFGSM(Attack):
    """Climbs the loss in small steps from the image itself: `pgd` without chance."""

    eps: Limit = None
    steps: int | None = None
    step: float | None = None
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        check_limits("i-fgsm", self.eps)
        check_steps("i-fgsm", self.steps, self.step)

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        return PGD(eps=self.eps, steps=self.steps, step=self.step, start="image").run(access, knowledge, rng)


def check_steps(attack: str, steps: object, step: object = None) -> None:
    """Refuse a number of steps below one and a step that leads nowhere."""
    if steps is not None:
        check_whole(attack, "steps", steps, 1)
    if step is None:
        return
    if isinstance(step, bool) or not isinstance(step, int | float) or not 0 < step < math.inf:
        raise BadInput(f"{attack} step = {step!r} is out of range; it must be a finite number above 0")


def _wrong_classes(logits: Tensor, y: Tensor) -> Tensor:
    """All classes, the likeliest wrong one first and the right one last, shape (N, classes)."""
    return logits.scatter(1, y[:, None], -torch.inf).argsort(1, descending=True)


def climb(
    frozen: Frozen, ball: Ball, x: Tensor, y: Tensor, aims: Tensor, loss: Loss, *, step: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Examples reached from `x` by raising `loss(logits, aims)`, and whether they fool the model about `y`.

    An image that is fooled, at the start or on the way, takes no further step.
    """
    made, fell = x.clone(), torch.zeros(len(x), dtype=torch.bool)
    x, alive = x.clone(), torch.arange(len(x))
    for number in range(steps + 1):
        # One pass tells both who has fallen and where the others go; after the last step only the former.
        if number < steps:
            logits, _, slope = frozen.look(x, aims, loss)
        else:
            logits, slope = frozen.answers(x), x
        wrong = fooled(logits, y)
        if wrong.any():
            made[alive[wrong]], fell[alive[wrong]] = x[wrong], True
            keep = ~wrong
            ball = ball[keep]
            alive, x, y, aims, slope = (part[keep] for part in (alive, x, y, aims, slope))
        if not len(alive):
            return made, fell
        if number < steps:
            x = ball.project(x.add_(ball.uphill(slope), alpha=step))
    made[alive] = x
    return made, fell
