"""How one number goes with another: rank correlation and slope, with their intervals."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from glasshouse.measures.estimate import LEVEL, Estimate


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Spearman's rho with its interval: Fisher's z, with Bonett and Wright's standard error.

    Without a value where there are fewer than 4 points, or all values of one side are the same.

    >>> rank_correlation([1, 2, 3, 4, 5], [1, 4, 9, 16, 25]).value
    1.0
    """
    n = len(x)
    if n < 4 or len(set(x)) < 2 or len(set(y)) < 2:
        reason = "fewer than 4 points" if n < 4 else "one side does not vary"
        return Estimate(None, None, None, n, reason)
    rho = float(stats.spearmanr(x, y).statistic)
    rho = max(-1.0, min(1.0, round(rho, 12)))
    if abs(rho) == 1:  # z is infinite there, and the data cannot bound it
        return Estimate(rho, None, None, n, "no interval: the order is perfect")
    half = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    z = math.atanh(rho)
    return Estimate(rho, math.tanh(z - half), math.tanh(z + half), n)


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
