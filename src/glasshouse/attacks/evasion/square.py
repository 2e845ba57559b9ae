"""The Square attack (Andriushchenko et al. 2020): random squares, kept where they help; no gradient."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.attacks.evasion.evasion import Evasion, Originals, Path, Problem
from glasshouse.attacks.evasion.frozen import Frozen, margin
from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.ball import Ball, Norm
from glasshouse.learning.seeds import torch_rng

SHARE = 0.8
"""The share of an image that the first squares cover."""
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""When that share is halved, in parts of all queries."""


@dataclass(frozen=True, kw_only=True)
class Square(Evasion):
    """Tries random squares of pixels moved by `eps` and keeps what helps, asking only for logits.

    An image gets `queries` queries in each of up to `restarts` searches.
    """

    name = "square"
    norm: Norm = "linf"
    queries: int = 1000
    restarts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm == "l2":
            raise BadInput('square norm = "l2" is not available; use "linf", or pgd and apgd-dlr for "l2"')

    def tries(self, images: Images) -> int:
        return self.restarts

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        draws = Draws(problem.images.x.shape, torch_rng(problem.seed, "squares", number))
        return RandomSearch(originals, draws, self.queries)


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


class RandomSearch(Path):
    """Proposals `x`, each the best example so far with another square."""

    def __init__(self, originals: Originals, draws: Draws, queries: int) -> None:
        stripes = draws.stripes()[originals.positions].expand_as(originals.ball.centre)
        x = originals.ball.at(stripes)
        super().__init__(originals, x, queries - 1)
        self._draws, self._best = draws, x
        self._lead = torch.full((len(x),), -torch.inf)

    def look(self, model: Frozen, number: int) -> Tensor:
        logits = model.answers(self.x)
        lead = margin(logits, self.originals.y)
        better = lead > self._lead
        self._best[better], self._lead[better] = self.x[better], lead[better]
        return logits

    def step(self, number: int) -> None:
        ball, positions = self.originals.ball, self.originals.positions
        length = side(number + 1, self.steps + 1, ball)
        top, left, signs = (part[positions] for part in self._draws.squares(length))
        self.x = _moved(self._best, ball, top, left, signs, length)

    def keep(self, which: Tensor) -> None:
        super().keep(which)
        self._best, self._lead = self._best[which], self._lead[which]

    @property
    def best(self) -> Tensor:
        return self._best


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
