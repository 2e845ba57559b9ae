"""Linear leakage: reading a layer's inputs from the gradient of its weights and biases (Fowl et al. 2022).

A linear layer whose rows all measure the same feature h(x) = v . x, each against a threshold of its own,
sorts its inputs into bins: row l is active for the samples with h(x) above its threshold. If the layer after
it treats all rows alike, a sample adds the same loss weight w to the gradient of each active row: w to its
bias, w x to its weights. So neighbouring rows differ by the samples whose feature lies between their
thresholds, and a sample alone in its bin is the quotient of the two differences.
"""

from typing import Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

Law = Literal["normal", "laplace", "empirical"]


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
