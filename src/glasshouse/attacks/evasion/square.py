"""The Square attack (Andriushchenko et al. 2020): random squares, kept where they help; no gradient."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from glasshouse.attacks.evasion.evasion import Evasion, Originals, Path, Problem
from glasshouse.attacks.evasion.frozen import Frozen, margin
from glasshouse.data.images import Images
from glasshouse.learning.ball import TINY, Ball, Norm, unit
from glasshouse.learning.seeds import torch_rng

SHARE = 0.8
"""The share of an image that the first squares cover."""
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""When that share is halved, in parts of all queries."""
TILES = 5
"""As many bumps side by side the search in "l2" begins with."""
NARROWEST = 3
"""The side of the smallest square that has room for two bumps."""


@dataclass(frozen=True, kw_only=True)
class Square(Evasion):
    """Tries random squares of pixels moved as far as `eps` allows and keeps what helps; asks for logits only.

    An image gets `queries` queries in each of up to `restarts` searches. In "l2" a square holds two bumps of
    opposite sign, paid for by what another square loses.
    """

    name = "square"
    norm: Norm = "linf"
    queries: int = 5000
    restarts: int = 1

    def tries(self, images: Images) -> int:
        return self.restarts

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        draws = Draws(problem.images.x.shape, torch_rng(problem.seed, "squares", number))
        return RandomSearch(originals, Squares(draws) if self.norm == "linf" else Bumps(draws), self.queries)


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers for all of N images of that shape, so that none depends on which others are left."""

    shape: torch.Size
    rng: torch.Generator

    def signs(self, height: int, width: int) -> Tensor:
        """Signs of shape (N, C, height, width)."""
        return (torch.randint(0, 2, (*self.shape[:2], height, width), generator=self.rng) * 2 - 1).float()

    def corners(self, side: int) -> Tensor:
        """The first row and column of a square in each image, shape (N, 2)."""
        images, _, *sizes = self.shape
        drawn = [torch.randint(size - side + 1, (images,), generator=self.rng) for size in sizes]
        return torch.stack(drawn, 1)

    def coins(self) -> Tensor:
        """Heads or tails for each image, bool of shape (N,)."""
        return torch.rand(self.shape[0], generator=self.rng) < 0.5


class Proposals(Protocol):
    """Where a search begins, and what it tries next."""

    def first(self, originals: Originals) -> Tensor:
        """A first example of each image."""
        ...

    def next(self, best: Tensor, originals: Originals, share: float) -> Tensor:
        """The best examples so far, each with another square that covers about that share of it."""
        ...


class RandomSearch(Path):
    """Proposals `x`, each the best example so far with another square."""

    def __init__(self, originals: Originals, proposals: Proposals, queries: int) -> None:
        x = proposals.first(originals)
        super().__init__(originals, x, queries - 1)
        self._proposals, self._best = proposals, x
        self._lead = torch.full((len(x),), -torch.inf)

    def look(self, model: Frozen, number: int) -> Tensor:
        logits = model.answers(self.x)
        lead = margin(logits, self.originals.y)
        better = lead > self._lead
        self._best[better], self._lead[better] = self.x[better], lead[better]
        return logits

    def step(self, number: int) -> None:
        self.x = self._proposals.next(self._best, self.originals, share(number + 1, self.steps + 1))

    def keep(self, which: Tensor) -> None:
        super().keep(which)
        self._best, self._lead = self._best[which], self._lead[which]

    @property
    def best(self) -> Tensor:
        return self._best


class Squares:
    """For "linf": stripes first, then squares at the rim of the ball."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def first(self, originals: Originals) -> Tensor:
        stripes = self._draws.signs(1, self._draws.shape[3])[originals.positions]
        return originals.ball.at(stripes.expand_as(originals.ball.centre))

    def next(self, best: Tensor, originals: Originals, share: float) -> Tensor:
        """At the other side of the ball where the square is at that rim already."""
        length = side(share, best.shape)
        window = _window(best, self._draws.corners(length)[originals.positions], length)
        signs = self._draws.signs(1, 1)[originals.positions]
        inner = Ball(originals.ball.centre[window], originals.ball.eps)
        aim = inner.at(signs.expand_as(inner.centre))
        same = (aim == best[window]).flatten(1).all(1)[:, None, None, None]
        aim = torch.where(same, inner.at(-signs.expand_as(inner.centre)), aim)
        moved = best.clone()
        moved[window] = aim
        return moved


class Bumps:
    """For "l2": tiles of bumps first, then bumps that take the length that another square gives up."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def first(self, originals: Originals) -> Tensor:
        height, width = originals.ball.centre.shape[2:]
        size = max(min(height, width) // TILES, 1)
        rows, columns = height // size, width // size
        signs = self._draws.signs(rows, columns)[originals.positions]
        signs = signs.repeat_interleave(size, 2).repeat_interleave(size, 3)
        tiles = self._shapes(size, originals).repeat(1, 1, rows, columns)
        moved = torch.zeros_like(originals.ball.centre)
        top, left = (height - rows * size) // 2, (width - columns * size) // 2
        moved[:, :, top : top + rows * size, left : left + columns * size] = signs * tiles
        return originals.ball.at(unit(moved))

    def next(self, best: Tensor, originals: Originals, share: float) -> Tensor:
        """Algorithm 3 of the paper."""
        ball, length = originals.ball, odd_side(share, best.shape)
        into, out_of = (
            _window(best, self._draws.corners(length)[originals.positions], length) for _ in range(2)
        )
        signs, shapes = self._draws.signs(1, 1)[originals.positions], self._shapes(length, originals)
        moved = best - ball.centre
        kept = moved.clone()
        kept[into] = kept[out_of] = 0
        freed = _squared(moved) - _squared(kept)
        unused = (ball.eps**2 - _squared(moved).sum(1, keepdim=True)).clamp_min(0) / moved.shape[1]
        bump = _normal(moved[into]) + signs * shapes
        kept[into] = _normal(bump) * (freed.clamp_min(0) + unused).sqrt()
        return ball.at(unit(kept))

    def _shapes(self, length: int, originals: Originals) -> Tensor:
        """Two bumps of opposite sign, upright or lying as a coin says, shape (N, 1, length, length)."""
        lying = bumps(length)
        coins = self._draws.coins()[originals.positions]
        return torch.where(coins[:, None, None, None], lying, lying.T)


def share(query: int, queries: int) -> float:
    """The share of an image that the square of one query covers."""
    return SHARE * 0.5 ** sum(query > part * queries for part in HALVINGS)


def side(share: float, shape: torch.Size) -> int:
    """The side of a square that covers that share of images of shape (N, C, H, W)."""
    height, width = shape[2:]
    return min(max(round(math.sqrt(share * height * width)), 1), height, width)


def odd_side(share: float, shape: torch.Size) -> int:
    """The same, odd and wide enough for two bumps, as far as images have room for it."""
    wide = max(side(share, shape), NARROWEST)
    height, width = shape[2:]
    return min(wide + 1 - wide % 2, height, width)


def bumps(length: int) -> Tensor:
    """Two bumps of opposite sign, one above the other, in a square of that side; of Euclidean length 1.

    A bump is a heap of squares around its middle, the k-th smallest of height 1 / k^2.

    >>> bumps(3)[:, 1] > 0
    tensor([ True, False, False])
    """
    upper = length // 2
    both = torch.cat([_bump(upper, length), -_bump(length - upper, length)])
    return both / both.square().sum().sqrt()


def _bump(height: int, width: int) -> Tensor:
    rings = max(height, width) // 2 + 1
    heights = torch.arange(1, rings + 1).float().pow(-2).flip(0).cumsum(0).flip(0)
    from_middle = [(torch.arange(size) - size // 2).abs() for size in (height, width)]
    return heights[torch.maximum(from_middle[0][:, None], from_middle[1])]


def _window(x: Tensor, corners: Tensor, side: int) -> tuple[Tensor, ...]:
    """The index of a square of each image, for all of its channels."""
    images, channels = torch.arange(len(x))[:, None, None, None], torch.arange(x.shape[1])[:, None, None]
    rows, columns = (corners[..., None] + torch.arange(side)).unbind(1)
    return images, channels, rows[:, None, :, None], columns[:, None, None, :]


def _squared(moved: Tensor) -> Tensor:
    """The squared length of each channel, shape (N, C, 1, 1)."""
    return moved.square().sum((2, 3), keepdim=True)


def _normal(moved: Tensor) -> Tensor:
    """Each channel scaled to length 1, or left at 0."""
    return moved / _squared(moved).sqrt().clamp_min(TINY)
