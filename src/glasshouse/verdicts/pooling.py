"""From findings of several seeds to one measure for each."""

import math
from collections.abc import Hashable, Iterable, Sequence

from glasshouse.exhibits import Robustness
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate
from glasshouse.verdicts.measure import Measure, grouped
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.seeds import over_seeds

Ranged = tuple[float | None, float | None, float | None]
"""A value and the ends of its interval, each null where there is none."""


def pooled(rows: Iterable[Finding], *, same_records: bool = False) -> list[Measure]:
    """One measure for every finding, over its seeds, in order of appearance.

    The value is the mean over the seeds. Its interval covers seeds and records in an audit (`over_seeds`);
    in a study it reaches from the lowest to the highest end of the seeds' intervals. Whether the seeds of an
    audit were asked about the `same_records`, its results say.
    """

    def question(row: Finding) -> Hashable:
        attack = (row.source, row.cell, row.family, row.adversary, row.attack, row.defence or "none")
        return (*attack, row.strategy, row.data, row.model, row.metric)

    return [_measure(group, same_records) for group in grouped(rows, question).values()]


def pooled_points(points: Iterable[Robustness], *, same_records: bool = False) -> list[Robustness]:
    """One point of an audit's curves for each model, attack and eps, over its seeds."""

    def place(point: Robustness) -> Hashable:
        attack = (point.attack, point.adversary, point.norm, point.eps)
        return (point.cell, point.strategy, point.defence, *attack)

    groups = grouped(points, place).values()
    return [group[0] if len(group) == 1 else _mean_point(group, same_records) for group in groups]


def share_records(row: Finding, same_records: bool) -> bool:
    """Whether all seeds of an audit were asked about the same records: those of a finished model always."""
    return row.source == "audit" and (same_records or row.strategy is None)


def _measure(rows: Sequence[Finding], same_records: bool) -> Measure:
    valued = [row for row in rows if row.value is not None]
    estimates = [(row.value, row.low, row.high) for row in valued]
    same_records = share_records(rows[0], same_records)
    if rows[0].source == "audit":
        value, low, high = _mean(estimates, metric_words(rows[0].metric).span, same_records)
    else:
        value, low, high = envelope(estimates)
    counts = [row.n for row in rows if row.n is not None]
    # One seed without an interval leaves the whole without: its row says why.
    bare = [row for row in valued if row.low is None and row.high is None]
    return Measure(
        row=(bare or rows)[0],
        value=value,
        low=low,
        high=high,
        chance=_mean_chance(rows),
        n=(max if same_records else sum)(counts) if counts else None,
        values=tuple(row.value for row in valued if row.value is not None),
    )


def _mean(estimates: Sequence[Ranged], bounds: tuple[float, float] | None, same_records: bool) -> Ranged:
    """The mean with its interval over seeds and records, cut to the `bounds` of the scale."""
    complete = [(v, lo, hi) for v, lo, hi in estimates if v is not None and lo is not None and hi is not None]
    if len(estimates) < 2 or len(complete) < len(estimates):
        # A bound from one side has no distance to take a variance from: the weakest of the bounds holds.
        return envelope(estimates)
    values, lows, highs = zip(*complete)
    low, high = over_seeds(values, lows, highs, same_records=same_records)
    least, most = bounds or (-math.inf, math.inf)
    return sum(values) / len(values), max(low, least), min(high, most)


def envelope(estimates: Sequence[Ranged]) -> Ranged:
    """The mean, from the lowest to the highest end; an end that one estimate lacks is lacking."""
    values = [value for value, _, _ in estimates if value is not None]
    lows = [low for _, low, _ in estimates if low is not None]
    highs = [high for _, _, high in estimates if high is not None]
    if not values or len(values) < len(estimates):
        return None, None, None
    return (
        sum(values) / len(values),
        min(lows) if len(lows) == len(values) else None,
        max(highs) if len(highs) == len(values) else None,
    )


def mean_over_seeds(
    estimates: Sequence[Estimate], bounds: tuple[float, float] | None = None, *, same_records: bool = False
) -> Estimate:
    """The mean of one estimate for each seed, with its interval over seeds and records, as in an audit."""
    if len(estimates) == 1:
        return estimates[0]
    ranged = [(one.value, one.low, one.high) for one in estimates]
    value, low, high = _mean(ranged, bounds, same_records)
    n = (max if same_records else sum)(one.n for one in estimates)
    return Estimate(value, low, high, n, next((one.note for one in estimates if one.note), None))


def _mean_point(points: Sequence[Robustness], same_records: bool) -> Robustness:
    same_records = same_records or not points[0].strategy  # without one it is a finished model
    values = _mean([(p.value, p.low, p.high) for p in points], (0.0, 1.0), same_records)
    differences = [(p.difference, p.difference_low, p.difference_high) for p in points]
    update = dict(zip(("value", "low", "high"), values))
    difference = _mean(differences, (-1.0, 1.0), same_records)
    update |= zip(("difference", "difference_low", "difference_high"), difference)
    count = (max if same_records else sum)(p.n or 0 for p in points) or None
    return points[0].model_copy(update=update | {"chance": _mean_chance(points), "n": count})


def _mean_chance(measured: Sequence[Finding | Robustness]) -> float | None:
    chances = [one.chance for one in measured if one.chance is not None]
    return sum(chances) / len(chances) if chances else None
