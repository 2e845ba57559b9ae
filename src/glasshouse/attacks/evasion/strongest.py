"""The strongest check: one attack after the other on what is left, with and without gradients."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.evasion.apgd import APGDCE, APGDDLR
from glasshouse.attacks.evasion.attempt import draw_seed, in_turn
from glasshouse.attacks.evasion.fgsm import along
from glasshouse.attacks.evasion.frozen import Frozen, fooled
from glasshouse.attacks.evasion.limits import Assault, Limit, check_limits, limits
from glasshouse.attacks.evasion.losses import cross_entropy
from glasshouse.attacks.evasion.masking import Duel, at_first_sight, compared, stalled, unbroken
from glasshouse.attacks.evasion.pgd import PGD, check_steps
from glasshouse.attacks.evasion.square import Square
from glasshouse.data.images import Images
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball, Norm, rim
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.options import check_whole

AGAIN = 5
"""Further random starts that gradients get on images that fell only without them."""
PROBED = 200
"""Images on which a very large limit is tried."""
GREY_REACH = 0.5
"""The limit in each pixel within which every image can be made uniformly grey."""


@dataclass(frozen=True, kw_only=True)
class Strongest(Attack):
    """Tries `pgd`, then on what is left `apgd-ce`, `apgd-dlr` and `square`, and looks for hidden gradients.

    An image counts as fooled where any of them, a single step or noise fools the model, so it is never weaker
    than `pgd` with the same options. `steps` (APGD's 100 without it) and `restarts` go to all attacks with
    gradients, `queries` to `square`, which only "linf" has.
    """

    eps: Limit = None
    norm: Norm = "linf"
    steps: int | None = None
    restarts: int = 1
    queries: int = 1000
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        check_limits("strongest", self.eps, self.norm)
        check_steps("strongest", self.steps)
        check_whole("strongest", "restarts", self.restarts, 1)
        check_whole("strongest", "queries", self.queries, 1)

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        assert knowledge.candidates is not None
        images, frozen, seed = knowledge.candidates, Frozen(access.model), draw_seed(rng)
        sizes = limits(self.eps, images)
        logits, _, slope = frozen.look(images.x, images.y, cross_entropy)
        wrong = fooled(logits, images.y)
        gradients = self._gradients(frozen, images, seed, self.restarts)
        square = Square(queries=self.queries).assault(frozen, images, seed) if self.norm == "linf" else None
        weapons = Weapons(gradients, along(slope, frozen), shake(frozen, images, seed), square)
        hunt = Hunt(images, images.x.clone(), wrong.clone(), wrong.clone())
        x, seen = [], []
        for eps in sizes:
            hunt.go(eps, self.norm, weapons)
            x.append(hunt.x.clone())
            seen.append(hunt.seen[~wrong])
        again = self._gradients(frozen, images, derive(seed, "again"), AGAIN)
        hunt.try_again(sizes[-1], self.norm, again)
        signs = at_first_sight(frozen, images.x, logits, slope, ~wrong)
        signs += compared(hunt.one_step, hunt.noise, hunt.hidden)
        signs += stalled(sizes, torch.stack(seen))
        signs += self._reach(gradients, images, hunt.seen, (~wrong).nonzero().flatten()[:PROBED])
        return AdversarialExamples(torch.stack(x), sizes, self.norm, tuple(signs), hunt.hidden)

    def _gradients(self, frozen: Frozen, images: Images, seed: int, restarts: int) -> Assault:
        """All attacks that climb, one after the other on what is left."""
        steps = self.steps or APGDCE.steps
        attacks = (
            PGD(norm=self.norm, steps=self.steps, restarts=restarts),
            APGDCE(norm=self.norm, steps=steps, restarts=restarts),
            APGDDLR(norm=self.norm, steps=steps, restarts=restarts),
        )
        assaults = [attack.assault(frozen, images, seed) for attack in attacks]

        def assault(ball: Ball, y: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            def go(number: int, ball: Ball, y: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
                return assaults[number](ball, y, positions[which])

            return in_turn(len(assaults), ball, y, go)

        return assault

    def _reach(self, gradients: Assault, images: Images, seen: Tensor, probed: Tensor) -> list[str]:
        """Whether gradients fool the model where every image can become any other's likeness."""
        side = math.sqrt(math.prod(images.shape)) if self.norm == "l2" else 1.0
        left = probed[~seen[probed]]
        if not len(left):
            return []
        eps = GREY_REACH * side
        _, fell = gradients(Ball(images.x[left], eps, self.norm), images.y[left], left)
        return unbroken(int((~fell).sum()), images.y[probed], eps)


class Weapons(NamedTuple):
    """All that is tried within a limit: many steps, one step, noise, and squares where the norm has them."""

    many: Assault
    one: Assault
    noise: Assault
    square: Assault | None


@dataclass(eq=False)
class Hunt:
    """Examples so far, shape (N, C, H, W), and which of them fool the model: at all, and by gradients."""

    images: Images
    x: Tensor
    fallen: Tensor
    seen: Tensor
    one_step: Duel = field(default_factory=Duel)
    noise: Duel = field(default_factory=Duel)

    @property
    def hidden(self) -> Tensor:
        """Who fell only without gradients, bool of shape (N,)."""
        return self.fallen & ~self.seen

    def go(self, eps: float, norm: Norm, weapons: Weapons) -> None:
        """Try those that gradients have not fooled yet within `eps`, then squares on those still right."""
        alive = (~self.seen).nonzero().flatten()
        if eps == 0 or not len(alive):
            return
        ball, y = Ball(self.images.x[alive], eps, norm), self.images.y[alive]
        (x, many), (stepped, one), (shaken, noise) = (weapon(ball, y, alive) for weapon in weapons[:3])
        self.one_step.add(one, many)
        fresh = ~self.fallen[alive]  # noise that fooled an image within a smaller limit counts once
        self.noise.add(noise[fresh], (many | one)[fresh])
        self.seen[alive[many | one]] = True
        x[one & ~many] = stepped[one & ~many]
        x[noise & ~many & ~one] = shaken[noise & ~many & ~one]
        self._take(alive, x, many | one | noise)
        rest = (~self.fallen).nonzero().flatten()
        if weapons.square is not None and len(rest):
            self._take(rest, *weapons.square(Ball(self.images.x[rest], eps, norm), self.images.y[rest], rest))

    def try_again(self, eps: float, norm: Norm, gradients: Assault) -> None:
        """Settle who is hidden: random search finds an image or two that gradients only missed by chance."""
        missed = self.hidden.nonzero().flatten()
        if len(missed):
            _, fell = gradients(Ball(self.images.x[missed], eps, norm), self.images.y[missed], missed)
            self.seen[missed[fell]] = True

    def _take(self, positions: Tensor, x: Tensor, fell: Tensor) -> None:
        """Keep the examples of images that had not fallen before."""
        fresh = ~self.fallen[positions]
        self.x[positions[fresh]] = x[fresh]
        self.fallen[positions[fell]] = True


def shake(frozen: Frozen, images: Images, seed: int) -> Assault:
    """Noise as large as the limit allows, the same for every limit."""

    def assault(ball: Ball, y: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        noise = rim(images.x.shape, ball.norm, torch_rng(seed, "noise"))
        x = ball.at(noise[positions])
        return x, fooled(frozen.answers(x), y)

    return assault
