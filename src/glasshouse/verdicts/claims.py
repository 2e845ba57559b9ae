"""What findings say to a paper: to its claims, from paired differences, and to its printed numbers.

A value belongs to a row (a data set and a network) and a seed. Values are averaged over the seeds of a row;
intervals are over rows where there are at least three of them, else over seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from glasshouse.measures.estimate import Estimate, mean
from glasshouse.verdicts.measure import Measure

WITHIN = "within the interval"
OUTSIDE = "printed number outside the interval"
UNPRINTED = "no printed number"
_ROUNDING = 1e-9

Unit = tuple[str, str, int]
"""Data set, network and seed."""


@dataclass(frozen=True)
class Verdict:
    """What the measured cells say to one claim."""

    claim: str
    verdict: str
    reason: str = ""


def judge(
    claim: str, values: Mapping[Unit, float], what: str, *, negligible: float = 0.0, where: str = ""
) -> Verdict:
    """Whether the values are above zero; an interval within `negligible` of it shows that they are not.

    `what` says what a value is, `where` which comparisons count.
    """

    def decide(low: float, high: float) -> str:
        if -negligible < low and high < negligible:
            return "refuted: no difference"
        if low > 0:
            return "holds"
        return "refuted: it is the other way round" if high < 0 else "not shown"

    return _judged(claim, values, what, where, decide)


def judge_flat(
    claim: str, slopes: Mapping[Unit, float], what: str, *, margin: float, where: str = ""
) -> Verdict:
    """Whether slopes are nothing: their interval lies within `margin` of zero, or else wholly beyond it."""

    def decide(low: float, high: float) -> str:
        if low > -margin and high < margin:
            return "holds"
        return "refuted" if low > margin or high < -margin else "not shown"

    return _judged(claim, slopes, what, where, decide)


def printed_verdict(measure: Measure) -> str:
    """Where the printed number lies to what was measured."""
    printed = measure.row.printed
    if printed is None:
        return UNPRINTED
    if measure.value is None:
        return "not estimable"
    low, high = measure.low, measure.high
    if low is None or high is None:
        if len(measure.values) < 2:
            return "no interval to judge by"
        low, high = min(measure.values), max(measure.values)
    return WITHIN if low - _ROUNDING <= printed <= high + _ROUNDING else OUTSIDE


def _over_units(values: Mapping[Unit, float]) -> Estimate | None:
    """The mean and its t interval: over data sets and networks, or over seeds where these are below 3."""
    rows: dict[tuple[str, str], list[float]] = {}
    for (data, model, _), value in values.items():
        rows.setdefault((data, model), []).append(value)
    means = [float(np.mean(seeds)) for seeds in rows.values()]
    gathered = means if len(means) >= 3 else list(values.values())
    return mean(gathered) if len(gathered) >= 2 else None


def _judged(
    claim: str, values: Mapping[Unit, float], what: str, where: str, decide: Callable[[float, float], str]
) -> Verdict:
    estimate = _over_units(values)
    if estimate is None or estimate.low is None or estimate.high is None:
        among = f" ({where})" if where else ""
        return Verdict(claim, "open", f"{len(values)} comparisons could be made{among}; it takes at least 2")
    rows = sorted({(data, model) for data, model, _ in values})
    named = " and ".join(f"{data} with {model}" for data, model in rows)
    unit = "data sets and networks" if len(rows) >= 3 else f"seeds on {named}"
    reason = (
        f"{what}: {estimate.value:+.4f}, 95% interval {estimate.low:+.4f} to {estimate.high:+.4f}, "
        f"n = {estimate.n} {unit} ({len(values)} comparisons)"
    )
    return Verdict(claim, decide(estimate.low, estimate.high), reason)
