"""What the cosines of canary clients say about epsilon (Andrew et al. 2023)."""

import math

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from glasshouse.measures.estimate import LEVEL, Estimate

RESAMPLES = 200
POINTS = 4001


def cosine_epsilon(cosines: np.ndarray, dimension: int, delta: float, rng: np.random.Generator) -> Estimate:
    """An estimate of the epsilon at `delta` of one canary, from the cosines of those that took part.

    After Andrew et al., "One-shot empirical privacy estimation for federated learning" (2023): without the
    canary its cosine is nearly N(0, 1 / d) in d dimensions; with it, a normal distribution is fitted. The
    estimate is the epsilon at which the two are within `delta`. It is no bound: it holds for an adversary who
    goes by the cosine, and for cosines that are normal. The interval is that of resampled canaries.
    """
    note = "an estimate, not a bound: for normal cosines, and an adversary who knows no more than them"
    if len(cosines) < 2:
        return Estimate(None, None, None, len(cosines), "one canary has no spread to fit")
    null = 1 / math.sqrt(dimension)
    value = _between(cosines, null, delta)
    drawn = [_between(rng.choice(cosines, len(cosines)), null, delta) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(min(low, value)), float(max(high, value)), len(cosines), note)


def _between(cosines: np.ndarray, null: float, delta: float) -> float:
    """The epsilon between N(0, null^2) and the normal distribution of the cosines."""
    return normal_epsilon(float(cosines.mean()) / null, float(cosines.std(ddof=1)) / null, delta)


def normal_epsilon(mean: float, std: float, delta: float) -> float:
    """The epsilon at `delta` between N(0, 1) and N(mean, std^2), in the worse direction.

    >>> round(normal_epsilon(1.0, 1.0, 1e-5), 2), normal_epsilon(0.0, 1.0, 1e-5)
    (4.38, 0.0)
    """
    std = max(std, 1e-3)
    reach = 9 * max(1.0, std)
    x = np.linspace(min(-reach, mean - reach), max(reach, mean + reach), POINTS)
    p, q = stats.norm.logpdf(x), stats.norm.logpdf(x, mean, std)
    step = x[1] - x[0]

    def excess(epsilon: float) -> float:
        both = (first - np.exp(np.minimum(second + epsilon, 700)) for first, second in pairs)
        return max(float(np.maximum(part, 0).sum() * step) for part in both) - delta

    pairs = [(np.exp(p), q), (np.exp(q), p)]
    if excess(0.0) <= 0:
        return 0.0
    most = 1.0
    while excess(most) > 0 and most < 1e4:
        most *= 2
    return float(brentq(excess, 0.0, most, xtol=1e-6)) if most < 1e4 else most
