"""FGSM (Goodfellow et al. 2015), iterated (Kurakin et al. 2017) and projected (PGD, Madry et al. 2018)."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from glasshouse.attacks.evasion.evasion import Evasion, Originals, Path, Problem, is_grey
from glasshouse.attacks.evasion.frozen import Frozen, Loss, attraction, cross_entropy
from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.ball import Norm
from glasshouse.options import check_choice, check_flag

STEPS = {"grey": 40, "colour": 20}
TRAVEL = {"grey": 4 / 3, "colour": 2.5}
"""All steps together, in units of eps: 40 of 0.01 for grey images at 0.3, 20 of 0.0025 for colour at 0.02."""


@dataclass(frozen=True, kw_only=True)
class PGD(Evasion):
    """Climbs the loss in small steps from a random image within `eps`, and again where that fails.

    Without `steps` it takes 40 for grey images and 20 for colour ones; without a `step` these cover 4/3 eps
    for grey images, 5/2 eps for colour ones and in "l2". `start` is "random" or "image". With `targeted` it
    climbs towards the `targets` most likely wrong classes instead, one after the other.
    """

    name = "pgd"
    norm: Norm = "linf"
    steps: int | None = None
    step: float | None = None
    start: Literal["random", "image"] = "random"
    restarts: int = 1
    targeted: bool = False
    targets: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "start", self.start, ("random", "image"))
        check_flag(self.name, "targeted", self.targeted)
        if self.start == "image" and self.restarts > 1:
            raise BadInput(
                f'pgd restarts = {self.restarts} repeat one path from the image; use start="random"'
            )

    def tries(self, images: Images) -> int:
        return self.restarts * self._ranks(images)

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        restart, rank = divmod(number, self._ranks(problem.images))
        x = originals.ball.centre.clone()
        if self.start == "random":
            x = problem.random_start(originals, restart)
        steps, step = pace(problem.images, originals, self.steps, self.step)
        if not self.targeted:
            return Ascent(originals, x, steps, step, cross_entropy, originals.y)
        return Ascent(originals, x, steps, step, attraction, problem.pairs(originals, rank)[:, 1])

    def _ranks(self, images: Images) -> int:
        """How many wrong classes each start climbs towards."""
        return min(self.targets, images.classes - 1) if self.targeted else 1


@dataclass(frozen=True, kw_only=True)
class FGSM(Evasion):
    """Moves every pixel by `eps` in the direction that raises the loss; `pgd`'s first step from the image.

    Without an `eps` it takes the batch-robustness paper's: 0.3 for grey images, 0.02 for colour ones. Several
    cost little more than one. An image that is wrong without an attack stays as it is.
    """

    name = "fgsm"

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        slope = problem.clean.slope[originals.positions]
        return Path(originals, originals.ball.at(originals.ball.uphill(slope)))

    def signs(self, problem: Problem, sizes: tuple[float, ...], fell: Tensor) -> list[str]:
        """None: what a single step leaves right is not taken for robustness."""
        return []


@dataclass(frozen=True, kw_only=True)
class IFGSM(Evasion):
    """Climbs the loss in small steps from the image itself: `pgd` without chance."""

    name = "i-fgsm"
    steps: int | None = None
    step: float | None = None

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        steps, step = pace(problem.images, originals, self.steps, self.step)
        return Ascent(originals, originals.ball.centre.clone(), steps, step, cross_entropy, originals.y)


class Ascent(Path):
    """Steps of one length along the slope of `loss(logits, aims)`, back into the ball where they leave it."""

    def __init__(
        self, originals: Originals, x: Tensor, steps: int, length: float, loss: Loss, aims: Tensor
    ) -> None:
        super().__init__(originals, x, steps)
        self.length, self._loss, self._aims, self._slope = length, loss, aims, x

    def look(self, model: Frozen, number: int) -> Tensor:
        if number == self.steps:
            return model.answers(self.x)  # no step follows, so no slope is needed
        logits, _, self._slope = model.look(self.x, self._aims, self._loss)
        return logits

    def step(self, number: int) -> None:
        ball = self.originals.ball
        self.x = ball.project(self.x.add_(ball.uphill(self._slope), alpha=self.length))

    def keep(self, which: Tensor) -> None:
        super().keep(which)
        self._aims, self._slope = self._aims[which], self._slope[which]


def pace(images: Images, originals: Originals, steps: int | None, step: float | None) -> tuple[int, float]:
    """The number of steps and their length, or the batch-robustness paper's where they are null."""
    grey = is_grey(images)
    steps = steps or STEPS["grey" if grey else "colour"]
    travel = TRAVEL["grey" if grey and originals.ball.norm == "linf" else "colour"]
    return steps, step or travel * originals.ball.eps / steps
