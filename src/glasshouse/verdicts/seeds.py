"""From the estimates of several seeds to one: an interval over records where seeds agree, else over both."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from glasshouse.measures.estimate import LEVEL, Estimate, mean

AGREEMENT = 0.5
"""Seeds agree where records alone would put them as far apart in at least half of all draws.

With a lower bar two or three seeds pass that differ by as much as their records do, and the interval over
records covers the mean too rarely: in 80 to 90 of 100 cases at 0.1.
"""
NORMAL = float(stats.norm.ppf((1 + LEVEL) / 2))
UNBOUNDED = (-math.inf, math.inf)


def across_seeds(
    estimates: Sequence[Estimate],
    *,
    level: float = LEVEL,
    bounds: tuple[float, float] = UNBOUNDED,
    same_records: bool = False,
    groups: int | None = None,
) -> Estimate:
    """The mean over seeds with its interval at `level`, cut to `bounds`.

    Each estimate has the 95% interval over its records. Where the seeds agree (Cochran's Q), the interval is
    over all their records, or over the `same_records` if they share them; else over seeds and records. Where
    a seed has no interval it is Student's over the seeds. Intervals that are over `groups` of records, such
    as rounds, were taken from Student's t with that many; they are widened to the level by the same one.

    >>> agreeing = across_seeds([Estimate(0.50, 0.40, 0.60, 96), Estimate(0.52, 0.42, 0.62, 96)])
    >>> round(agreeing.low, 3), round(agreeing.high, 3), agreeing.n
    (0.439, 0.581, 192)
    """
    known = [(e.value, e.low, e.high) for e in estimates if e.value is not None]
    if not known or len(known) < len(estimates):
        return Estimate(None, None, None, 0, next((e.note for e in estimates if e.note), None))
    bounded = [(value, low, high) for value, low, high in known if low is not None and high is not None]
    if len(bounded) < len(known):
        return mean([value for value, _, _ in known], bounds=bounds, level=level)
    values, lows, highs = (np.array(column, dtype=float) for column in zip(*bounded))
    if len(values) > 1 and not _agree(values, lows, highs):
        low, high = over_seeds(values, lows, highs, same_records=same_records, level=level)
    else:
        stretch = _stretch(level, groups or sum(estimate.n for estimate in estimates))
        low, high = (
            float(values.mean() + sign * stretch * _reach(values - ends, same_records))
            for sign, ends in ((-1, lows), (1, highs))
        )
    count = (max if same_records else sum)(estimate.n for estimate in estimates)
    return Estimate(float(values.mean()), max(low, bounds[0]), min(high, bounds[1]), count)


def over_seeds(
    values: Sequence[float] | np.ndarray,
    lows: Sequence[float] | np.ndarray,
    highs: Sequence[float] | np.ndarray,
    *,
    same_records: bool = False,
    level: float = LEVEL,
) -> tuple[float, float]:
    """The interval of a mean over seeds, where both the seed and the records are drawn at random.

    Each of S seeds has a value with an interval that covers the choice of its records. The variance of the
    mean is (B + W) / S: B is the sample variance of the values, W the mean of the variances within a seed,
    taken from the distance d between value and end as (d / 1.96)^2, for the lower and the upper end apart.
    B alone is estimated, from S - 1 degrees of freedom, so the quantile is that of Student's t with
    (S - 1) ((B + W) / B)^2 of them (Satterthwaite): S - 1 where training decides, normal where records do.
    With the `same_records` for all seeds nothing about them averages out: the variance is B / S + W.

    B already holds some of the records' luck, so the interval errs on the wide side. The exception are two
    seeds that differ by far more than their intervals explain: it then covers the mean in 87 of 100 cases.

    >>> low, high = over_seeds([0.5, 0.5, 0.5, 0.5], [0.4] * 4, [0.6] * 4)  # equal: 0.1 / sqrt(4)
    >>> round(low, 4), round(high, 4)
    (0.45, 0.55)
    >>> low, high = over_seeds([0.5, 0.5, 0.5, 0.5], [0.4] * 4, [0.6] * 4, same_records=True)
    >>> round(low, 4), round(high, 4)
    (0.4, 0.6)
    """
    middle, count = float(np.mean(values)), len(values)
    between = float(np.var(values, ddof=1)) / count
    reaches = []
    for ends in (lows, highs):
        within = float(np.mean((np.subtract(values, ends) / NORMAL) ** 2))
        total = between + (within if same_records else within / count)
        freedom = (count - 1) * (total / between) ** 2 if between else math.inf
        reaches.append(float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(total))
    return middle - reaches[0], middle + reaches[1]


def _agree(values: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> bool:
    """Whether records alone explain how far the seeds lie apart."""
    deviations = (highs - lows) / (2 * NORMAL)
    if not deviations.all():
        return bool(np.ptp(values) == 0)
    weights = deviations**-2
    middle = float(np.average(values, weights=weights))
    apart = float((weights * (values - middle) ** 2).sum())
    return float(stats.chi2.sf(apart, len(values) - 1)) > AGREEMENT


def _stretch(level: float, count: int) -> float:
    """From an interval at 95% to one at `level`, by Student's quantiles for so many records or groups."""
    wide, usual = (float(stats.t.ppf((1 + one) / 2, max(1, count - 1))) for one in (level, LEVEL))
    return wide / usual


def _reach(distances: np.ndarray, same_records: bool) -> float:
    """How far the end of the mean's interval lies from it, from the distances of each seed's."""
    squares = float((distances**2).mean())
    return math.sqrt(squares if same_records else squares / len(distances))
