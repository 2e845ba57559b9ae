"""The strongest check: one attack after the other on what is left, with and without gradients."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from glasshouse.attacks.evasion.apgd import APGDCE, APGDDLR
from glasshouse.attacks.evasion.evasion import (
    Attempt,
    Evasion,
    Originals,
    Path,
    Problem,
    Try,
    follow,
    in_turn,
)
from glasshouse.attacks.evasion.masking import PairedCounts, at_first_sight, compared, stalled, unbroken
from glasshouse.attacks.evasion.pgd import FGSM, PGD
from glasshouse.attacks.evasion.square import Square
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Norm, rim
from glasshouse.learning.seeds import derive, torch_rng

AGAIN = 5
"""Further random starts that gradients get on images that fell only without them."""
PROBED = 200
"""Images on which a very large limit is tried."""
GREY_REACH = 0.5
"""The limit in each pixel within which every image can be made uniformly grey."""


@dataclass(frozen=True, kw_only=True)
class Strongest(Evasion):
    """Tries `pgd`, then on what is left `apgd-ce`, `apgd-dlr` and `square`, and looks for hidden gradients.

    An image counts as fooled where any of them, a single step or noise fools the model, so it is never weaker
    than `pgd` with the same options. `steps` (APGD's 100 without it) and `restarts` go to all attacks with
    gradients, `queries` to `square`, which only "linf" has.
    """

    name = "strongest"
    norm: Norm = "linf"
    steps: int | None = None
    restarts: int = 1
    queries: int = 1000

    def solve(self, problem: Problem, sizes: tuple[float, ...]) -> AdversarialExamples:
        attempts = Attempts(
            partial(self.attempt, problem),
            partial(FGSM().attempt, problem),
            partial(add_noise, problem),
            partial(Square(queries=self.queries).attempt, problem) if self.norm == "linf" else None,
        )
        search = Search(problem, self.norm)
        x, seen = [], []
        for eps in sizes:
            search.widen(eps, attempts)
            x.append(search.x.clone())
            seen.append(search.seen[~problem.wrong])
        again = dataclasses.replace(problem, seed=derive(problem.seed, "again"))
        search.settle(sizes[-1], partial(dataclasses.replace(self, restarts=AGAIN).attempt, again))
        signs = at_first_sight(problem.model, problem.images.x, problem.clean, ~problem.wrong)
        signs += compared(search.one_step, search.noise, search.hidden)
        signs += stalled(sizes, torch.stack(seen))
        signs += self._reach(problem, search.seen)
        return AdversarialExamples(torch.stack(x), sizes, self.norm, tuple(signs), search.hidden)

    def attempt(self, problem: Problem, originals: Originals) -> Attempt:
        """All attacks that climb, one after the other on what is left."""
        steps = self.steps or APGDCE.steps
        attacks: Sequence[Evasion] = (
            PGD(norm=self.norm, steps=self.steps, restarts=self.restarts),
            APGDCE(norm=self.norm, steps=steps, restarts=self.restarts),
            APGDDLR(norm=self.norm, steps=steps, restarts=self.restarts),
        )
        return in_turn([partial(attack.attempt, problem) for attack in attacks], originals)

    def _reach(self, problem: Problem, seen: Tensor) -> list[str]:
        """Whether gradients fool the model where every image can become any other's likeness."""
        images = problem.images
        probed = (~problem.wrong).nonzero().flatten()[:PROBED]
        left = probed[~seen[probed]]
        if not len(left):
            return []
        eps = GREY_REACH * (math.sqrt(math.prod(images.shape)) if self.norm == "l2" else 1.0)
        _, fell = self.attempt(problem, problem.within(eps, self.norm, left))
        return unbroken(int((~fell).sum()), images.y[probed], eps)


class Attempts(NamedTuple):
    """What is tried within a limit: many steps, one step, noise, and squares where the norm has them."""

    many_steps: Try
    one_step: Try
    noise: Try
    squares: Try | None


class Search:
    """Examples within rising limits, shape (N, C, H, W), and which fool the model: at all, and by gradients.

    `one_step` and `noise` compare these two with all that many steps reach on the same images.
    """

    def __init__(self, problem: Problem, norm: Norm) -> None:
        self._problem, self._norm = problem, norm
        self.x = problem.images.x.clone()
        self.fallen, self.seen = problem.wrong.clone(), problem.wrong.clone()
        self.one_step, self.noise = PairedCounts(), PairedCounts()

    @property
    def hidden(self) -> Tensor:
        """Which images fell only without gradients, bool of shape (N,)."""
        return self.fallen & ~self.seen

    def widen(self, eps: float, attempts: Attempts) -> None:
        """Try those that gradients have not fooled yet within `eps`, then squares on those still right."""
        alive = (~self.seen).nonzero().flatten()
        if eps == 0 or not len(alive):
            return
        originals = self._problem.within(eps, self._norm, alive)
        (x, many), (stepped, one), (noisy, noise) = (attempt(originals) for attempt in attempts[:3])
        self.one_step.add(one, many)
        fresh = ~self.fallen[alive]  # noise that fooled an image within a smaller limit counts once
        self.noise.add(noise[fresh], (many | one)[fresh])
        self.seen[alive[many | one]] = True
        x[one & ~many] = stepped[one & ~many]
        x[noise & ~many & ~one] = noisy[noise & ~many & ~one]
        self._take(alive, x, many | one | noise)
        rest = (~self.fallen).nonzero().flatten()
        if attempts.squares is not None and len(rest):
            self._take(rest, *attempts.squares(self._problem.within(eps, self._norm, rest)))

    def settle(self, eps: float, gradients: Try) -> None:
        """Try hidden images again: random search finds one or two that gradients only missed by chance."""
        missed = self.hidden.nonzero().flatten()
        if len(missed):
            _, fell = gradients(self._problem.within(eps, self._norm, missed))
            self.seen[missed[fell]] = True

    def _take(self, positions: Tensor, x: Tensor, fell: Tensor) -> None:
        """Keep the examples of images that had not fallen before."""
        fresh = ~self.fallen[positions]
        self.x[positions[fresh]] = x[fresh]
        self.fallen[positions[fell]] = True


def add_noise(problem: Problem, originals: Originals) -> Attempt:
    """Noise as large as the limit allows, the same for every limit."""
    noise = rim(problem.images.x.shape, originals.ball.norm, torch_rng(problem.seed, "noise"))
    return follow(Path(originals, originals.ball.at(noise[originals.positions])), problem.model)
