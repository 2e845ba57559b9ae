"""The Square attack (Andriushchenko et al. 2020): random squares, kept where they help; no gradient."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.evasion.attempt import attempt, in_turn
from glasshouse.attacks.evasion.frozen import Frozen, fooled, margin
from glasshouse.attacks.evasion.limits import Assault, Limit, check_limits
from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball, Norm
from glasshouse.learning.seeds import torch_rng
from glasshouse.options import check_whole

SHARE = 0.8
"""The share of an image that the first squares cover."""
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""When that share is halved, in parts of all queries."""


@dataclass(frozen=True, kw_only=True)
class Square(Attack):
    """Tries random squares of pixels moved by `eps` and keeps what helps, asking only for logits."""

    eps: Limit = None
    norm: Norm = "linf"
    queries: int = 1000
    restarts: int = 1
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        check_limits("square", self.eps, self.norm)
        check_whole("square", "queries", self.queries, 1)
        check_whole("square", "restarts", self.restarts, 1)
        if self.norm == "l2":
            raise BadInput('square norm = "l2" is not available; use "linf", or pgd and apgd-dlr for "l2"')

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        return attempt(self, access, knowledge, rng)

    def assault(self, frozen: Frozen, images: Images, seed: int) -> Assault:
        """The attack on some of `images`; its random numbers follow from `seed` and an image's position."""

        def assault(ball: Ball, y: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            def go(number: int, ball: Ball, y: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
                draws = Draws(images.x.shape, torch_rng(seed, "squares", number))
                return search(frozen, ball, y, draws, positions[which], self.queries)

            return in_turn(self.restarts, ball, y, go)

        return assault


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers for all of N images of that shape, so that none depends on which others are left."""

    shape: torch.Size
    rng: torch.Generator

    def stripes(self) -> Tensor:
        """A sign for every column and channel, shape (N, C, 1, W)."""
        images, channels, _, width = self.shape
        return self._signs(images, channels, 1, width)

    def squares(self, side: int) -> tuple[Tensor, Tensor, Tensor]:
        """The first row and column of a square in each image, shape (N,), and signs, shape (N, C, 1, 1)."""
        images, channels, height, width = self.shape
        top = torch.randint(height - side + 1, (images,), generator=self.rng)
        left = torch.randint(width - side + 1, (images,), generator=self.rng)
        return top, left, self._signs(images, channels, 1, 1)

    def _signs(self, *shape: int) -> Tensor:
        return (torch.randint(0, 2, shape, generator=self.rng) * 2 - 1).float()


def search(
    frozen: Frozen, ball: Ball, y: Tensor, draws: Draws, place: Tensor, queries: int
) -> tuple[Tensor, Tensor]:
    """The best examples found, and whether they fool the model; `place` are the images' rows in `draws`."""
    x = ball.at(draws.stripes()[place].expand_as(ball.centre))
    made, fell = x.clone(), torch.zeros(len(x), dtype=torch.bool)
    alive, lead = torch.arange(len(x)), torch.full((len(x),), -torch.inf)
    tried = x
    for query in range(queries):
        logits = frozen.answers(tried)
        leads = margin(logits, y)
        better = leads > lead
        x[better], lead[better] = tried[better], leads[better]
        wrong = fooled(logits, y)
        if wrong.any():
            made[alive[wrong]], fell[alive[wrong]] = tried[wrong], True
            keep = ~wrong
            ball, place = ball[keep], place[keep]
            alive, x, y, lead = (part[keep] for part in (alive, x, y, lead))
        if not len(alive):
            return made, fell
        top, left, signs = (part[place] for part in draws.squares(side(query + 1, queries, ball)))
        tried = _moved(x, ball, top, left, signs, side(query + 1, queries, ball))
    made[alive] = x
    return made, fell


def side(query: int, queries: int, ball: Ball) -> int:
    """The side of the squares of one query: their area is a share of the image that shrinks."""
    height, width = ball.centre.shape[2:]
    share = SHARE / 2 ** sum(query > part * queries for part in HALVINGS)
    return min(max(round(math.sqrt(share * height * width)), 1), height, width)


def _moved(x: Tensor, ball: Ball, top: Tensor, left: Tensor, signs: Tensor, side: int) -> Tensor:
    """`x` with a square of each image at the rim of the ball; at the other side where it is there already."""
    images, channels = torch.arange(len(x))[:, None, None, None], torch.arange(x.shape[1])[:, None, None]
    span = torch.arange(side)
    rows, columns = (top[:, None] + span)[:, None, :, None], (left[:, None] + span)[:, None, None, :]
    window = (images, channels, rows, columns)
    inner = Ball(ball.centre[window], ball.eps)
    aim = inner.at(signs.expand_as(inner.centre))
    same = (aim == x[window]).flatten(1).all(1)[:, None, None, None]
    aim = torch.where(same, inner.at(-signs.expand_as(inner.centre)), aim)
    moved = x.clone()
    moved[window] = aim
    return moved
