"""Two attacks, two defences or two runs beside each other: what their difference shows, with its interval.

A difference is the second less the first. Where both were asked about the same records it is paired, record
by record and seed by seed, and its interval leaves out the luck that both share. Else the intervals of the
two are combined as if independent, which errs on the wide side.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from glasshouse.exhibits import Records
from glasshouse.findings import Finding
from glasshouse.measures.comparing import (
    auc_difference,
    mean_difference,
    rate_difference,
    share_difference,
    tpr_difference,
)
from glasshouse.measures.estimate import LEVEL, Estimate, combined
from glasshouse.measures.thresholds import NEAR_EXACT, RECOVERED
from glasshouse.verdicts.measure import Measure, leaks
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.pooling import mean_over_seeds, pooled, share_records

Verdict = Literal["more", "less", "may be luck", "no difference shown", "not judged"]

RATES = {"tpr-at-1%-fpr": 0.01, "tpr-at-0.1%-fpr": 0.001, "tpr-at-0.01%-fpr": 0.0001}
"""The false positive rates of metrics that count true ones there."""

TABLES = {
    "auc": ("membership", "batch-membership"),
    "balanced-accuracy": ("membership", "batch-membership"),
    "advantage": ("membership", "batch-membership"),
    **dict.fromkeys(RATES, ("membership", "batch-membership")),
    "source-accuracy": ("source",),
    "robust-accuracy": ("evasion",),
    "clean-accuracy": ("evasion",),
    "test-accuracy": ("accuracy",),
    "psnr": ("reconstruction",),
    "recovery-rate": ("reconstruction",),
    "near-exact-rate": ("reconstruction",),
}
"""The metrics whose differences are paired, and the tables of `scores.npz` that they are made from."""

BySeed = Mapping[int | None, Records]


@dataclass(frozen=True)
class Side:
    """One of the two: its name, its findings of one metric over its seeds, and what is kept behind them.

    The seeds may have been asked about the `same_records`.
    """

    name: str
    rows: Sequence[Finding]
    records: BySeed = dataclasses.field(default_factory=dict)
    same_records: bool = False

    def over(self, seeds: Collection[int | None]) -> "Side":
        """The findings of these seeds alone."""
        return dataclasses.replace(self, rows=[row for row in self.rows if row.seed in seeds])

    @property
    def measure(self) -> Measure:
        """The findings as one, also where they are of several runs with a cell each."""
        rows = [dataclasses.replace(row, cell=self.rows[0].cell) for row in self.rows]
        (measure,) = pooled(rows, same_records=self.same_records)
        return measure


@dataclass(frozen=True)
class Difference:
    """The second side less the first, on one metric of one attack.

    `unpaired` says why the two are not compared record by record, where they are not. Where they are and the
    `seeds_differ`, both measures are over the seeds that both have.
    """

    first: Measure
    second: Measure
    names: tuple[str, str]
    estimate: Estimate
    unpaired: str = ""
    seeds_differ: bool = False

    @property
    def row(self) -> Finding:
        """What is compared: attack, adversary, defence and metric, as the first side has them."""
        return self.first.row

    @property
    def value(self) -> float | None:
        """How much more the second has."""
        return self.estimate.value

    @property
    def low(self) -> float | None:
        """The lower end of the 95% interval."""
        return self.estimate.low

    @property
    def high(self) -> float | None:
        """The upper end of the 95% interval."""
        return self.estimate.high

    @property
    def of_leak(self) -> bool:
        """Whether the metric says what an adversary got, rather than how good the model is."""
        return leaks(self.first)

    def verdict(self, among: int = 1) -> Verdict:
        """Whether the second leaks "more" or "less", or has more or less of what is no leak.

        Of `among` differences that are nothing, one in twenty lies outside its 95% interval. So a verdict
        needs an interval widened for their number (Bonferroni); what only the 95% interval shows may be luck.
        """
        low, high = self.low, self.high
        if self.value is None or low is None or high is None:
            return "not judged"
        if low <= 0 <= high:
            return "no difference shown"
        wider = _quantile(among) / _quantile(1)
        near = low if low > 0 else high
        if abs(self.value) <= wider * abs(self.value - near):
            return "may be luck"
        falls = metric_words(self.row.metric).leaks == "low" and self.of_leak
        return "less" if (self.value > 0) == falls else "more"


def difference(first: Side, second: Side, *, unpaired: str = "") -> Difference:
    """The difference of two sides on the metric that their findings have in common.

    Where they have other seeds besides, those that both have are paired, and both values are over these
    alone. Nothing is paired where `unpaired` says why not: in other data a position is another record.
    """
    names = (first.name, second.name)
    seeds = _seeds(first), _seeds(second)
    common = [side.over(seeds[0] & seeds[1]) for side in (first, second)]
    paired = unpaired or _paired(*common)
    if isinstance(paired, Estimate):
        a, b = (side.measure for side in common)
        return Difference(a, b, names, paired, seeds_differ=seeds[0] != seeds[1])
    a, b = first.measure, second.measure
    if a.value is None or b.value is None:
        missing = a if a.value is None else b
        return Difference(a, b, names, Estimate(None, None, None, 0, missing.reason), paired)
    sides = [Estimate(m.value, m.low, m.high, m.n or 0) for m in (b, a)]
    return Difference(a, b, names, combined(sides, (1.0, -1.0)), paired)


def _seeds(side: Side) -> set[int | None]:
    return {row.seed for row in side.rows}


def _paired(first: Side, second: Side) -> Estimate | str:
    """The difference over the records of each seed and over the seeds, or why there is none."""
    if not first.rows:
        return "the seeds differ"
    metric = first.rows[0].metric
    if metric not in TABLES:
        return "this metric has no paired form"
    parts = []
    for seed in sorted(_seeds(first), key=str):
        a, b = (_table(side.records.get(seed), metric) for side in (first, second))
        if a is None or b is None:
            return "no scores of single records are kept"
        one = _of_records(metric, a, b)
        if one is None:
            return "the records differ" if metric not in RATES else "this metric cannot be paired on these"
        parts.append(one)
    same_records = share_records(first.rows[0], first.same_records or second.same_records)
    return mean_over_seeds(parts, (-math.inf, math.inf), same_records=same_records)


def _table(records: Records | None, metric: str) -> Records | None:
    return records if records is not None and records.table in TABLES[metric] else None


def _of_records(metric: str, first: Records, second: Records) -> Estimate | None:
    """The second less the first, on the same records; null where these are not the same."""
    if first.table != second.table:
        return None
    a, b = (_in_order(one, metric) for one in (first, second))
    keys = [key for key in ("record", "member", "eps") if key in a]
    if not len(a["record"]) or not all(np.array_equal(a[key], b[key]) for key in keys):
        return None
    if metric == "auc":
        return auc_difference(b["score"], a["score"], a["member"])
    if metric in ("balanced-accuracy", "advantage"):
        weight = 0.5 if metric == "balanced-accuracy" else 1.0
        return rate_difference(b["decision"], a["decision"], a["member"], weight)
    if metric in RATES:
        rng = np.random.default_rng(0)  # so that the same two always have the same interval
        return tpr_difference(b["score"], a["score"], a["member"], RATES[metric], rng)
    if metric == "psnr":
        return mean_difference(b["psnr"], a["psnr"], a["record"])
    if first.table == "reconstruction":
        if len(np.unique(a["record"])) < len(a["record"]):
            return None
        least = RECOVERED if metric == "recovery-rate" else NEAR_EXACT
        return share_difference(b["psnr"] >= least, a["psnr"] >= least)
    return share_difference(b["hit"], a["hit"])


def _in_order(records: Records, metric: str) -> dict[str, np.ndarray]:
    """The columns by record; of evasion those at the largest eps, or at none for clean accuracy."""
    columns = dict(records.columns)
    if records.table == "evasion" and len(records):
        eps = columns["eps"]
        at = eps == (0.0 if metric == "clean-accuracy" else eps.max())
        columns = {name: column[at] for name, column in columns.items()}
    order = np.argsort(columns["record"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


def _quantile(among: int) -> float:
    return float(stats.norm.ppf(1 - (1 - LEVEL) / (2 * among)))
