"""How one number goes with another: correlations and slope, with their intervals."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from glasshouse.measures.estimate import LEVEL, Estimate


def pearson(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Pearson's r with its interval: Fisher's z = atanh(r), whose standard error is 1 / sqrt(n - 3).

    Without a value where there are fewer than 4 points, or all values of one side are the same.

    >>> pearson([1, 2, 3, 4], [2, 4, 6, 8]).value
    1.0
    """
    r, n, reason = _correlated(x, y, stats.pearsonr)
    if r is None:
        return Estimate(None, None, None, n, reason)
    if abs(r) == 1:
        return Estimate(r, None, None, n, "no interval: the points lie on a line")
    return _by_fisher(r, n, 1.0)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Spearman's rho with its interval: Fisher's z, with Bonett and Wright's standard error.

    Without a value where there are fewer than 4 points, or all values of one side are the same.

    >>> rank_correlation([1, 2, 3, 4, 5], [1, 4, 9, 16, 25]).value
    1.0
    """
    rho, n, reason = _correlated(x, y, stats.spearmanr)
    if rho is None:
        return Estimate(None, None, None, n, reason)
    if abs(rho) == 1:  # z is infinite there, and the data cannot bound it
        return Estimate(rho, None, None, n, "no interval: the order is perfect")
    return _by_fisher(rho, n, 1 + rho**2 / 2)


def _correlated(
    x: Sequence[float], y: Sequence[float], statistic: Callable[..., Any]
) -> tuple[float | None, int, str | None]:
    """A coefficient in [-1, 1] and the number of points, or the reason why there is none."""
    n = len(x)
    if n < 4 or len(set(x)) < 2 or len(set(y)) < 2:
        return None, n, "fewer than 4 points" if n < 4 else "one side does not vary"
    return max(-1.0, min(1.0, round(float(statistic(x, y).statistic), 12))), n, None


def _by_fisher(coefficient: float, n: int, variance: float) -> Estimate:
    """The interval where atanh of the coefficient has `variance` / (n - 3)."""
    half = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance / (n - 3))
    z = math.atanh(coefficient)
    return Estimate(coefficient, math.tanh(z - half), math.tanh(z + half), n)


def slope(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The slope of the least-squares line; none where fewer than 2 different x are there.

    >>> slope([0, 1, 2], [1, 3, 5])
    2.0
    """
    if len(set(x)) < 2:
        return None
    return round(float(np.polyfit(x, y, 1)[0]), 12)


def powers(x: np.ndarray, degree: int = 3) -> np.ndarray:
    """The columns of a least-squares polynomial in `x`, shape (N, degree + 1); x is scaled to stay small."""
    scaled = (x - x.mean()) / max(np.ptp(x), 1e-12)
    return np.vander(scaled, degree + 1)


def explained_share(x: np.ndarray, y: np.ndarray, degree: int = 3) -> float:
    """The share of the variance of `y` that a polynomial in `x` explains.

    >>> x = np.arange(6.0)
    >>> round(explained_share(x, x**3 - x), 12)
    1.0
    """
    columns = powers(x, degree)
    fitted = columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    return float(1 - ((y - fitted) ** 2).sum() / ((y - y.mean()) ** 2).sum())
