"""Bins of brightness: what an imprint layer sorts images into, and the images read back from them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.attacks.crafted.leakage import quotients
from glasshouse.attacks.crafted.sorting import signs

SAME = 0.05
"""Up to which root mean square difference two images from neighbouring bins are the same one."""
TINY = 1e-12
"""What stands in for a measured zero."""
LOUD = 5.0
"""How far above the empty bins a bin must stand to count as occupied."""


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of brightness by their rising thresholds, shape (k,), and the rows' signs in the second layer."""

    thresholds: Tensor

    @property
    def signs(self) -> Tensor:
        """The sign of each row's column in the second layer, shape (k,)."""
        return signs(len(self.thresholds))

    @property
    def width(self) -> float:
        """The usual width of a bin."""
        return max(float(self.thresholds[1:].diff().median()), TINY) if len(self.thresholds) > 2 else 1.0

    def bounds(self, slack: int) -> tuple[Tensor, Tensor]:
        """The least and the greatest brightness in each bin and `slack` bins around it, shape (k,) each."""
        edges = torch.cat([torch.zeros(1), self.thresholds[1:], torch.ones(1)]).clamp(0, 1)
        places = torch.arange(len(self.thresholds))
        return edges[(places - slack).clamp(min=0)], edges[(places + 1 + slack).clamp(max=len(edges) - 1)]

    def answer(self, brightness: Tensor) -> Tensor:
        """The signed sum of the rows, shape (N,), for images of this brightness, shape (N,)."""
        return (brightness.double()[:, None] - self.thresholds).relu() @ self.signs


def noise_level(readings: Tensor, samples: int) -> float:
    """The size of a reading, one of each bin, shape (k,), that `samples` samples leave to empty bins.

    Of k bins a share of about (1 - 1/k)^samples is empty; nine in ten of them read less than this.
    """
    return float(readings.abs().quantile(0.9 * (1 - 1 / len(readings)) ** samples))


def occupied(readings: Tensor, samples: int) -> Tensor:
    """The bins whose reading, shape (k,), stands out from those that `samples` samples leave empty.

    The strongest come first.
    """
    strength = readings.abs()
    loud = (strength > LOUD * noise_level(readings, samples)).nonzero().flatten()
    return loud[strength[loud].argsort(descending=True)]


def decode(
    sums: Tensor, weights: Tensor, samples: int, slack: int, shape: tuple[int, int, int], offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """At most `samples` images, shape (K, C, H, W) in [0, 1], and the size of their weights, strongest first.

    From the pixels' sums, shape (k, C H W), each with `offset` on top, and the weights, shape (k,). A sample
    may turn up in bins that are up to `slack` apart; it counts once.
    """
    places = occupied(weights, samples * (1 + slack))
    pixels = quotients(sums[places], weights[places]) - offset
    x = pixels.nan_to_num().clamp(0, 1)
    kept = _distinct(x, places, slack)[:samples]
    return x[kept].reshape(-1, *shape).float(), weights[places[kept]].abs()


def _distinct(x: Tensor, places: Tensor, slack: int) -> Tensor:
    """Which rows of x, shape (K, d), to keep so that no image comes twice from bins up to `slack` apart."""
    if not slack:
        return torch.arange(len(x))
    alike = torch.cdist(x, x) < SAME * math.sqrt(x.shape[1])
    twins = (alike & ((places[:, None] - places).abs() <= slack)).tril(-1)
    kept = torch.ones(len(x), dtype=torch.bool)
    for row, twin in enumerate(twins):
        kept[row] = not (twin & kept).any()
    return kept.nonzero().flatten()
