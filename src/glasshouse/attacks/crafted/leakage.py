"""Linear leakage: reading a layer's inputs from the gradient of its weights and biases (Fowl et al. 2022).

A linear layer whose rows all measure the same feature h(x) = v . x, each against a threshold of its own,
sorts its inputs into bins: row l is active for the samples with h(x) above its threshold. If the layer after
it treats all rows alike, a sample adds the same loss weight w to the gradient of each active row: w to its
bias, w x to its weights. So neighbouring rows differ by the samples whose feature lies between their
thresholds, and a sample alone in its bin is the quotient of the two differences.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

Law = Literal["normal", "laplace", "empirical"]
SAME = 0.05
"""Up to which root mean square difference two images from neighbouring bins are the same one."""
TINY = 1e-12
"""What stands in for a measured zero."""
LOUD = 5.0
"""How far above the empty bins a bin must stand to count as occupied."""


def thresholds(feature: Tensor, count: int, law: Law = "empirical") -> Tensor:
    """`count` rising thresholds that share the feature's values, shape (N,), evenly among the bins.

    Bin l reaches from threshold l to the next, the last one upwards without end. The law is fitted to the
    values: a normal or a Laplace distribution, or their own quantiles. The first threshold lies a whole
    range below all values, so that no sample falls through.
    """
    values = feature.double().numpy()
    shares = np.arange(count) / count
    if law == "empirical":
        cut = np.quantile(values, shares)
    elif law == "normal":
        cut = stats.norm.ppf(shares, values.mean(), values.std())
    else:
        middle = np.median(values)
        cut = stats.laplace.ppf(shares, middle, np.abs(values - middle).mean())
    spread = max(float(np.ptp(values)), np.finfo(np.float32).tiny)
    cut[0] = np.append(cut[1:2], values.min()).min() - spread
    return torch.from_numpy(cut)


def bin_sums(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """What the samples of each bin add together: weighted inputs, shape (k, d), and weights, shape (k,).

    Takes the gradients of the rows' weights, shape (k, d), and biases, shape (k,), by rising threshold.
    """
    sums, weights = weight.clone(), bias.clone()
    sums[:-1] -= weight[1:]
    weights[:-1] -= bias[1:]
    return sums, weights


def quotients(sums: Tensor, weights: Tensor) -> Tensor:
    """The input of each bin's sample, shape (k, d), as if it were alone there; no weight may be zero."""
    return sums / weights[:, None]


def signs(rows: int) -> Tensor:
    """The sign with which the layers after it take each row, shape (k,)."""
    return torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.double).repeat(-(-rows // 4))[:rows]


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of brightness by their rising thresholds, shape (k,): what an imprint layer sorts images into."""

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


def occupied(readings: Tensor, samples: int) -> Tensor:
    """The bins whose reading, shape (k,), stands out from those that `samples` samples leave empty.

    The strongest come first. Of k bins a share of about (1 - 1/k)^samples is empty; nine in ten of them read
    less than the noise.
    """
    strength = readings.abs()
    noise = float(strength.quantile(0.9 * (1 - 1 / len(readings)) ** samples))
    loud = (strength > LOUD * noise).nonzero().flatten()
    return loud[strength[loud].argsort(descending=True)]


def decode(
    sums: Tensor, weights: Tensor, samples: int, slack: int, shape: tuple[int, int, int], offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """At most `samples` images, shape (K, C, H, W) in [0, 1], and the size of their weights, strongest first.

    From the pixels' sums, shape (k, C H W), each with `offset` on top, and the weights, shape (k,). A sample
    may turn up in bins that are up to `slack` apart; it counts once.
    """
    places = occupied(weights, samples * (1 + slack))
    x = (quotients(sums[places], weights[places]) - offset).nan_to_num().clamp(0, 1)
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
