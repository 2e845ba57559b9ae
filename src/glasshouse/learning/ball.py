"""The images an evasion attack may choose from: those near an original, in the pixels' own range."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Norm = Literal["linf", "l2"]

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, eq=False)
class Ball:
    """All images in [0, 1] within `eps` of the originals `centre`, shape (N, C, H, W), one by one."""

    centre: Tensor
    eps: float
    norm: Norm = "linf"

    def __len__(self) -> int:
        return len(self.centre)

    def __getitem__(self, which: Any) -> "Ball":
        """The ball around some of the originals: a slice, an index array or a mask."""
        return Ball(self.centre[which], self.eps, self.norm)

    def project(self, x: Tensor) -> Tensor:
        """The nearest images inside, to float precision; may write into `x`."""
        if self.norm == "linf":
            below, above = self.centre - self.eps, self.centre + self.eps
            return torch.clamp(x, below.clamp_(min=0), above.clamp_(max=1), out=x)
        moved = x.sub_(self.centre)
        moved *= (self.eps / lengths(moved).clamp_min(TINY)).clamp_max(1)
        # The original lies in [0, 1] too, so cutting to it only shortens the way.
        return moved.add_(self.centre).clamp_(0, 1)

    def distances(self, x: Tensor) -> Tensor:
        """How far images lie from the originals, shape (N,)."""
        moved = (x - self.centre).flatten(1)
        return moved.abs().amax(1) if self.norm == "linf" else torch.linalg.vector_norm(moved, dim=1)

    def uphill(self, slope: Tensor) -> Tensor:
        """The direction of length 1 along which a function of that `slope` grows fastest; 0 where it is flat.

        May write into `slope`.
        """
        return slope.sign_() if self.norm == "linf" else unit(slope)

    def at(self, noise: Tensor) -> Tensor:
        """The originals moved by `noise`, which has length 1 at most, times eps."""
        return self.project(self.centre + self.eps * noise)


def lengths(x: Tensor) -> Tensor:
    """The Euclidean length of each of N images, shape (N, 1, 1, 1)."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=(1, 2, 3), keepdim=True)
    return norms


def unit(x: Tensor) -> Tensor:
    """Each of N images scaled to length 1, or left at 0."""
    # Squares of the small numbers that saturated models give would be rounded to nothing.
    scaled = x / x.abs().amax((1, 2, 3), keepdim=True).clamp_min(TINY)
    return scaled / lengths(scaled).clamp_min(TINY)


def inside(shape: torch.Size, norm: Norm, rng: torch.Generator) -> Tensor:
    """Noise drawn uniformly from the ball of radius 1, for each of N images."""
    if norm == "linf":
        return torch.rand(shape, generator=rng).mul_(2).sub_(1)
    radius = torch.rand(shape[0], 1, 1, 1, generator=rng) ** (1 / shape[1:].numel())
    return unit(torch.randn(shape, generator=rng)) * radius


def rim(shape: torch.Size, norm: Norm, rng: torch.Generator) -> Tensor:
    """Noise of length 1: a random sign for every pixel ("linf"), a random direction ("l2")."""
    if norm == "linf":
        return (torch.randint(0, 2, shape, generator=rng) * 2 - 1).float()
    return unit(torch.randn(shape, generator=rng))
