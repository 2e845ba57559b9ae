"""Figure 6: how the brightness of latents is distributed, and how well two laws fit it."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy import stats

from glasshouse.findings import Finding
from glasshouse.measures.estimate import proportion
from glasshouse.studies.scale_mia.targets import Prepared

EDGES = tuple(float(edge) for edge in np.arange(-3.0, 3.01, 0.5))
"""In standard deviations from the mean; the outer bins reach to the ends."""

SEEN = "auxiliary latents"
LAWS = ("normal", "laplace")
DISTANCE = "kolmogorov-smirnov"


def brightness_rows(prepared: Prepared) -> list[Finding]:
    """The share of latents in each bin, what each law gives it, and the largest gap of the two CDFs."""
    values = prepared.surrogate.latents.double().mean(1).numpy()
    values = (values - values.mean()) / values.std()
    middle = float(np.median(values))
    laws: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "normal": stats.norm.cdf,
        "laplace": stats.laplace(middle, float(np.abs(values - middle).mean())).cdf,
    }
    counts = np.bincount(np.searchsorted(EDGES, values, side="right"), minlength=len(EDGES) + 1)
    rows = []
    for name, count in zip(bins(), counts):
        share = proportion(int(count), len(values))
        ends = {"low": share.low, "high": share.high, "n": share.n}
        rows.append(_row(prepared, SEEN, name, share.value or 0.0, **ends))
    for law, cdf in laws.items():
        whole = np.diff(np.concatenate([[0.0], cdf(np.array(EDGES)), [1.0]]))
        rows += [_row(prepared, law, name, float(share)) for name, share in zip(bins(), whole)]
        gap = float(stats.kstest(values, cdf).statistic)
        rows.append(_row(prepared, law, DISTANCE, gap, n=len(values)))
    return rows


def bins() -> list[str]:
    """The names of the bins, which are the metrics of their shares."""
    inner = [f"{low:+.1f} to {high:+.1f}" for low, high in pairwise(EDGES)]
    return [f"below {EDGES[0]:+.1f}", *inner, f"above {EDGES[-1]:+.1f}"]


def _row(prepared: Prepared, law: str, metric: str, value: float, **ends: float | int | None) -> Finding:
    target = prepared.target
    return Finding(
        source="",
        cell="",
        family="distribution",
        attack=law,
        data=target.data,
        model=target.network,
        metric=metric,
        value=value,
        low=ends.get("low"),
        high=ends.get("high"),
        n=int(ends.get("n") or 0) or None,
    )
