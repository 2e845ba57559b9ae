"""Numbers with their 95% intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval and the number of observations.

    `note` says why a value is missing, or what its interval leaves out.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str | None = None


def proportion(successes: int, n: int) -> Estimate:
    """A share with its exact (Clopper-Pearson) interval.

    >>> round(proportion(0, 10).high, 12)  # 1 - 0.025^(1/10)
    0.308497107819
    """
    low, high = clopper_pearson(successes, n)
    return Estimate(successes / n, low, high, n)


def clustered_proportion(hits: np.ndarray, clusters: np.ndarray) -> Estimate:
    """The share of `hits`, bool of shape (N,), where those of a cluster, by number, stand or fall together.

    The exact interval for as many independent cases as clusters of these sizes are worth, (sum of sizes)^2
    over the sum of their squares (Kish 1965); `n` is their number, rounded down.

    >>> clustered_proportion(np.zeros(30, bool), np.arange(30) // 3).high == proportion(0, 10).high
    True
    """
    return weighed_proportion(float(hits.mean()), worth(clusters))


def weighed_proportion(share: float, cases: float) -> Estimate:
    """A share with the exact interval for as many independent cases as its observations are worth."""
    low, high = clopper_pearson(share * cases, cases)
    return Estimate(share, low, high, int(cases + 1e-9))


def worth(clusters: np.ndarray) -> float:
    """How many independent cases clusters are worth, whose number is given for each observation (Kish 1965).

    >>> worth(np.array([0, 0, 1, 1])), worth(np.array([0, 1, 2]))
    (2.0, 3.0)
    """
    sizes = np.unique(clusters, return_counts=True)[1]
    return len(clusters) ** 2 / float((sizes**2).sum())


def clopper_pearson(successes: float, n: float, tail: float = (1 - LEVEL) / 2) -> tuple[float, float]:
    """The exact interval of a binomial proportion, which misses on either side with probability `tail`."""
    low = stats.beta.ppf(tail, successes, n - successes + 1) if successes else 0.0
    high = stats.beta.ppf(1 - tail, successes + 1, n - successes) if successes < n else 1.0
    return float(low), float(high)


def mean(
    values: Sequence[float],
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    level: float = LEVEL,
) -> Estimate:
    """A mean with its t interval at `level`, cut to `bounds`; one observation has no interval.

    Where all observations lie on one bound their spread says nothing; the binomial interval holds there,
    since a bounded variable reaches its bound with at most the probability that its mean allows. Without a
    second bound nothing holds, and there is no interval.
    """
    array = np.asarray(values, dtype=float)
    middle = float(array.mean())
    if len(array) < 2:
        return Estimate(middle, None, None, len(array))
    for bound, successes in zip(bounds, (0, len(array))):
        if (array == bound).all():
            if math.isinf(bounds[1] - bounds[0]):
                return Estimate(middle, None, None, len(array), "no interval: all lie on one bound")
            shares = clopper_pearson(successes, len(array), (1 - level) / 2)
            low, high = (bounds[0] + (bounds[1] - bounds[0]) * share for share in shares)
            return Estimate(middle, low, high, len(array))
    half = float(stats.t.ppf((1 + level) / 2, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array)))
    return Estimate(middle, max(bounds[0], middle - half), min(bounds[1], middle + half), len(array))


def clustered_mean(
    values: Sequence[float],
    clusters: np.ndarray,
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """A mean where the values of a cluster, by number, go together; that of `mean` where each is alone.

    With m the mean of N values in G clusters, its variance is G / (G - 1) times the sum over clusters of
    (sum of x - m)^2, over N^2: where clusters are of one size, that of the mean of their means. `n` is what
    they are worth.

    >>> clustered_mean([1, 3, 5, 7], np.array([0, 0, 1, 1])).low == mean([2, 6]).low
    True
    """
    array = np.asarray(values, dtype=float)
    which = np.unique(clusters, return_inverse=True)[1]
    count = int(which.max()) + 1
    if count == len(array):
        return mean(values, bounds=bounds)
    n, middle = int(worth(clusters) + 1e-9), float(array.mean())
    if count < 2 or any((array == bound).all() for bound in bounds):
        return mean([middle] * n, bounds=bounds)
    spread = float(np.sqrt((np.bincount(which, array - middle) ** 2).sum() * count / (count - 1)))
    half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * spread / len(array)
    return Estimate(middle, max(bounds[0], middle - half), min(bounds[1], middle + half), n)


def combined(parts: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """The weighted sum of independent estimates; without a value or an interval where a part has none.

    The distances from the value to the ends add by the square-root rule (Zou and Donner's MOVER), so the
    sum's interval is as lopsided as its parts' are, and wider than a point wherever one of theirs is.

    >>> difference = combined([Estimate(0.5, 0.2, 0.9, 10), Estimate(0.5, 0.1, 0.8, 10)], [1, -1])
    >>> round(difference.low, 12), round(difference.high, 12)  # 0.3 and 0.4, each times the root of 2
    (-0.424264068712, 0.565685424949)
    """
    n = sum(part.n for part in parts)
    value = below = above = 0.0
    bounded = True
    for part, weight in zip(parts, weights, strict=True):
        if part.value is None:
            return Estimate(None, None, None, n, part.note)
        value += weight * part.value
        if part.low is None or part.high is None:
            bounded = False
        else:
            down, up = sorted((weight * (part.low - part.value), weight * (part.high - part.value)))
            below, above = math.hypot(below, down), math.hypot(above, up)
    return Estimate(value, value - below, value + above, n) if bounded else Estimate(value, None, None, n)
