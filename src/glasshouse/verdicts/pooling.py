"""From findings of several seeds to one measure for each."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from glasshouse.findings import Finding
from glasshouse.measures.estimate import LEVEL
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import metric_words


def pooled(rows: Iterable[Finding]) -> list[Measure]:
    """One measure for every finding, over its seeds, in order of appearance.

    The value is the mean over the seeds. Its interval covers seeds and records in an audit (`over_seeds`);
    in a study it reaches from the lowest to the highest end of the seeds' intervals.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for row in rows:
        key = (row.source, row.cell, row.family, row.adversary, row.attack, row.defence or "none")
        groups.setdefault((*key, row.strategy, row.data, row.model, row.metric), []).append(row)
    return [_measure(group) for group in groups.values()]


def over_seeds(values: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of a mean over seeds, where both the seed and the records are drawn at random.

    Each of S seeds has a value v with an interval that covers the choice of its records. The variance of the
    mean is (B + W) / S: B is the sample variance of the values, W the mean of the seeds' own variances, each
    taken from the distance d between value and end as (d / 1.96)^2, for the lower and the upper end apart.
    B alone is estimated, from S - 1 degrees of freedom, so the quantile is that of Student's t with
    (S - 1) ((B + W) / B)^2 of them (Satterthwaite): S - 1 where training decides, normal where records do.

    B already holds some of the records' luck, so the interval errs on the wide side, except for two seeds
    that differ by far more than their intervals explain: there it covers the mean in 87 of 100 cases.

    >>> low, high = over_seeds([0.5, 0.5, 0.5, 0.5], [0.4] * 4, [0.6] * 4)  # equal: 0.1 / sqrt(4)
    >>> round(low, 4), round(high, 4)
    (0.45, 0.55)
    """
    middle, count = float(np.mean(values)), len(values)
    between = float(np.var(values, ddof=1))
    reaches = []
    for ends in (lows, highs):
        within = float(np.mean((np.subtract(values, ends) / stats.norm.ppf((1 + LEVEL) / 2)) ** 2))
        total = between + within
        freedom = (count - 1) * (total / between) ** 2 if between else math.inf
        reaches.append(float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(total / count))
    return middle - reaches[0], middle + reaches[1]


def _measure(rows: Sequence[Finding]) -> Measure:
    valued = [row for row in rows if row.value is not None]
    values = tuple(row.value for row in valued if row.value is not None)
    chances = [row.chance for row in rows if row.chance is not None]
    counts = [row.n for row in rows if row.n is not None]
    # One seed without an interval leaves the whole without: its row says why.
    bare = [row for row in valued if row.low is None and row.high is None]
    low, high = _interval(valued, values)
    return Measure(
        row=(bare or rows)[0],
        value=sum(values) / len(values) if values else None,
        low=low,
        high=high,
        chance=sum(chances) / len(chances) if chances else None,
        n=sum(counts) if counts else None,
        values=values,
    )


def _interval(rows: Sequence[Finding], values: Sequence[float]) -> tuple[float | None, float | None]:
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    if 1 < len(values) == len(lows) == len(highs) and rows[0].source == "audit":
        least, most = metric_words(rows[0].metric).span or (-math.inf, math.inf)
        low, high = over_seeds(values, lows, highs)
        return max(low, least), min(high, most)
    # A bound from one side has no distance to take a variance from: the weakest of the bounds holds.
    return (
        min(lows) if lows and len(lows) == len(values) else None,
        max(highs) if highs and len(highs) == len(values) else None,
    )
