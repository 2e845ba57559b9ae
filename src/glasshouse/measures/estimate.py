"""Numbers with their 95% intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval and the number of observations; `note` says why a value is missing."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str | None = None


def proportion(successes: int, n: int) -> Estimate:
    """A share with its exact (Clopper-Pearson) interval.

    >>> proportion(0, 10).high  # 1 - 0.025^(1/10)
    0.30849710781876083
    """
    low, high = clopper_pearson(successes, n)
    return Estimate(successes / n, low, high, n)


def clopper_pearson(successes: int, n: int, tail: float = (1 - LEVEL) / 2) -> tuple[float, float]:
    """The exact interval of a binomial proportion, which misses on either side with probability `tail`."""
    low = stats.beta.ppf(tail, successes, n - successes + 1) if successes else 0.0
    high = stats.beta.ppf(1 - tail, successes + 1, n - successes) if successes < n else 1.0
    return float(low), float(high)


def mean(values: Sequence[float], *, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Estimate:
    """A mean with its t interval, cut to `bounds`; one observation has no interval.

    Where all observations lie on one bound their spread says nothing; the binomial interval holds there,
    since a bounded variable reaches its bound with at most the probability that its mean allows.
    """
    array = np.asarray(values, dtype=float)
    middle = float(array.mean())
    if len(array) < 2:
        return Estimate(middle, None, None, len(array))
    for bound, successes in zip(bounds, (0, len(array))):
        if (array == bound).all():
            low, high = (
                bounds[0] + (bounds[1] - bounds[0]) * end for end in clopper_pearson(successes, len(array))
            )
            return Estimate(middle, low, high, len(array))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array)))
    return Estimate(middle, max(bounds[0], middle - half), min(bounds[1], middle + half), len(array))
