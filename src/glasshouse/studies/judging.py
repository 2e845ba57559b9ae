"""From paired differences to a verdict on a claim.

A value belongs to a row (a data set and a network) and a seed. Values are averaged over the seeds of a row;
intervals are over rows where there are at least three of them, else over seeds.
"""

from collections.abc import Mapping

import numpy as np

from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies.study import Verdict

Unit = tuple[str, str, int]
"""Data set, network and seed."""


def judge(
    claim: str, values: Mapping[Unit, float], what: str, *, negligible: float = 0.0, where: str = ""
) -> Verdict:
    """Whether the values are above zero; an interval within `negligible` of it shows that they are not.

    `what` says what a value is, `where` which comparisons count.
    """
    found = _over_units(values)
    if found is None or found.low is None or found.high is None:
        return _open(claim, values, where)
    if -negligible < found.low and found.high < negligible:
        verdict = "refuted: no difference"
    elif found.low > 0:
        verdict = "holds"
    elif found.high < 0:
        verdict = "refuted: it is the other way round"
    else:
        verdict = "not shown"
    return Verdict(claim, verdict, _reason(what, found, values))


def judge_flat(
    claim: str, slopes: Mapping[Unit, float], what: str, *, margin: float, where: str = ""
) -> Verdict:
    """Whether slopes are nothing: their interval lies within `margin` of zero, or else wholly beyond it."""
    found = _over_units(slopes)
    if found is None or found.low is None or found.high is None:
        return _open(claim, slopes, where)
    within = found.low > -margin and found.high < margin
    beyond = found.low > margin or found.high < -margin
    verdict = "holds" if within else "refuted" if beyond else "not shown"
    return Verdict(claim, verdict, _reason(what, found, slopes))


def _over_units(values: Mapping[Unit, float]) -> Estimate | None:
    """The mean and its t interval: over data sets and networks, or over seeds where these are below 3."""
    rows: dict[tuple[str, str], list[float]] = {}
    for (data, model, _), value in values.items():
        rows.setdefault((data, model), []).append(value)
    means = [float(np.mean(own)) for own in rows.values()]
    gathered = means if len(means) >= 3 else list(values.values())
    return mean(gathered) if len(gathered) >= 2 else None


def _open(claim: str, values: Mapping[Unit, float], where: str) -> Verdict:
    said = f" ({where})" if where else ""
    return Verdict(claim, "open", f"{len(values)} comparisons could be made{said}; it takes at least 2")


def _reason(what: str, found: Estimate, values: Mapping[Unit, float]) -> str:
    rows = sorted({(data, model) for data, model, _ in values})
    named = " and ".join(f"{data} with {model}" for data, model in rows)
    unit = "data sets and networks" if len(rows) >= 3 else f"seeds on {named}"
    return (
        f"{what}: {found.value:+.4f}, 95% interval {found.low:+.4f} to {found.high:+.4f}, "
        f"n = {found.n} {unit} ({len(values)} comparisons)"
    )
