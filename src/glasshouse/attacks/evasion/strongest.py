"""AutoAttack's standard ensemble (Croce and Hein 2020), and a look for hidden gradients beside it."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from glasshouse.attacks.evasion.apgd import APGDCE, APGDDLR, APGDT
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
from glasshouse.attacks.evasion.fab import FABT
from glasshouse.attacks.evasion.masking import PairedCounts, at_first_sight, compared, stalled, unbroken
from glasshouse.attacks.evasion.pgd import FGSM
from glasshouse.attacks.evasion.square import Square
from glasshouse.data.images import Images
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Norm, rim
from glasshouse.learning.seeds import derive, torch_rng

AGAIN = 5
"""Random starts that gradients get once more on images that fell only without them."""
PROBED = 200
"""Images on which a very large limit is tried."""
GREY_REACH = 0.5
"""The limit in each pixel within which every image can be made uniformly grey."""


@dataclass(frozen=True, kw_only=True)
class Strongest(Evasion):
    """Tries `apgd-ce`, then on what is left `apgd-t`, `fab-t` and `square`: AutoAttack's standard ensemble.

    Without options that is the ensemble of robustness leaderboards; fewer `steps`, `targets` or `queries` are
    a shorter check. `restarts` go to `apgd-ce` and `apgd-t`. It also looks for hidden gradients, for which it
    takes a single step and noise beside the ensemble; these change no example.
    """

    name = "strongest"
    norm: Norm = "linf"
    steps: int = 100
    restarts: int = 1
    targets: int = 9
    queries: int = 5000

    def solve(self, problem: Problem, sizes: tuple[float, ...]) -> AdversarialExamples:
        *climbing, squares = (member.solver(problem) for member in self.members())
        attempts = Attempts(
            partial(in_turn, climbing), squares, partial(FGSM().attempt, problem), partial(add_noise, problem)
        )
        search = Search(problem, self.norm)
        x, seen = [], []
        for eps in sizes:
            search.widen(eps, attempts)
            x.append(search.x.clone())
            seen.append(search.seen[~problem.wrong])
        again = dataclasses.replace(problem, seed=derive(problem.seed, "again"))
        search.settle(sizes[-1], partial(self._climb, again, AGAIN))
        signs = at_first_sight(problem.model, problem.images.x, problem.clean, ~problem.wrong)
        signs += compared(search.one_step, search.noise, search.hidden)
        signs += stalled(sizes, torch.stack(seen))
        signs += self._reach(problem, search.seen)
        return AdversarialExamples(
            torch.stack(x), sizes, self.norm, tuple(signs), search.hidden, self.notes(problem.images)
        )

    def members(self) -> Sequence[Evasion]:
        """The attacks in their order; the last needs no gradients."""
        return (
            APGDCE(norm=self.norm, steps=self.steps, restarts=self.restarts),
            APGDT(norm=self.norm, steps=self.steps, restarts=self.restarts, targets=self.targets),
            FABT(norm=self.norm, steps=self.steps, targets=self.targets),
            Square(norm=self.norm, queries=self.queries),
        )

    def notes(self, images: Images) -> tuple[str, ...]:
        return tuple(note for member in self.members() for note in member.notes(images))

    def _climb(self, problem: Problem, restarts: int, originals: Originals) -> Attempt:
        """What looks for signs: gradients alone, a step or many, towards no class in particular."""
        attacks = (
            FGSM(),
            APGDCE(norm=self.norm, steps=self.steps, restarts=restarts),
            APGDDLR(norm=self.norm, steps=self.steps, restarts=restarts),
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
        _, fell = self._climb(problem, 1, problem.within(eps, self.norm, left))
        return unbroken(int((~fell).sum()), images.y[probed], eps)


class Attempts(NamedTuple):
    """What is tried within a limit: the ensemble, by gradients and squares, and what it is compared with."""

    gradients: Try
    squares: Try
    one_step: Try
    noise: Try


class Search:
    """Examples within rising limits, shape (N, C, H, W), and which fool the model: at all, and by gradients.

    `one_step` and `noise` compare these two with all that many steps reach on the same images.
    """

    def __init__(self, problem: Problem, norm: Norm) -> None:
        self._problem, self._norm = problem, norm
        self.x = problem.images.x.clone()
        self.fallen, self.seen, self._noisy = (problem.wrong.clone() for _ in range(3))
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
        x, many = attempts.gradients(originals)
        _, one = attempts.one_step(originals)
        _, noise = attempts.noise(originals)
        self.one_step.add(one, many)
        fresh = ~(self.fallen | self._noisy)[alive]  # an image counts for noise once
        self.noise.add(noise[fresh], (many | one)[fresh])
        self._noisy[alive[noise]] = True
        self.seen[alive[many]] = True
        self._take(alive, x, many)
        rest = (~self.fallen).nonzero().flatten()
        if len(rest):
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
