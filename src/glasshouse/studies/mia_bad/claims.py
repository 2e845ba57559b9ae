"""The paper's three claims against what was measured.

A target is a model trained on one data set with one seed in one of four ways. Targets of one data set and
seed share their records and shadow models, so they are averaged first, and then the seeds of a data set; the
intervals are over data sets, or over seeds where a claim was tested on fewer than three of them.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad import cells
from glasshouse.studies.mia_bad.cells import SAMPLE, USUAL, TableCell, batch_batch, batch_sample
from glasshouse.verdicts.claims import Unit, Verdict, judge, judge_flat

NEGLIGIBLE = 0.005
"""A change of less than half a point is none."""
SATURATED = 0.995
"""Above this an AUC has no room left to differ."""
MATCHED = 0.03
"""Train accuracies that differ by no more count as matched."""
COMPARED = "seeds that are done, not saturated, matched where asked"
LOSS = ("loss-threshold", "auc")
BALANCED = "balanced-accuracy"

BySeed = Mapping[int, float]
Value = Callable[[Measured, TableCell, str], BySeed]
"""From what was measured, a row of the tables and a way of training, to a number for each seed."""


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim, under each protocol that it could mean."""
    single, batches = "judging single records: balanced accuracy", "judging batches: AUC"
    over_loss = partial(_over_rival, f"set-loss(batch_size={USUAL})", "auc")
    over_null = partial(_over_rival, cells.NULL_CURVE, "null-auc")
    better: list[tuple[str, Value, str]] = [
        (single, _gain, "batch-wise minus sample-wise"),
        (f"{batches} above the mean loss's", over_loss, "AUC minus that of the mean loss"),
        (f"{batches} above the null curve", over_null, "AUC minus the null curve"),
    ]
    flat = {single: partial(_slope, batch_sample, BALANCED), batches: partial(_slope, batch_batch, "auc")}
    federation: list[tuple[str, Value, str]] = [
        (
            "Federation mitigates",
            partial(_mitigation, (SAMPLE, BALANCED)),
            "balanced accuracy, sample-sample, central minus federated (the shadow models are central, so "
            "their threshold fits a federated target less)",
        ),
        (
            "Federation mitigates, whatever the threshold",
            partial(_mitigation, LOSS),
            "AUC of the loss, central minus federated",
        ),
        (
            "Federation mitigates at matched train accuracy",
            _matched_mitigation,
            f"AUC of the loss, stopped central minus federated, train accuracies within {MATCHED}",
        ),
    ]
    above = partial(judge, negligible=NEGLIGIBLE, where=COMPARED)
    none = partial(judge_flat, what="change with each doubling", margin=NEGLIGIBLE, where=COMPARED)
    return [
        *(
            above(f"Batch-wise is better ({how})", _over_modes(measured, value), what)
            for how, value, what in better
        ),
        *(
            none(f"The gain does not depend on the batch size ({how})", _over_modes(measured, slope))
            for how, slope in flat.items()
        ),
        *(
            above(f"{claim} ({mode.replace('-', ' ')})", _units(measured, value, mode), what)
            for claim, value, what in federation
            for mode in cells.FEDERATED
        ),
    ]


def _gain(measured: Measured, row: TableCell, mode: str) -> BySeed:
    batch = measured.by_seed(row.at(mode, USUAL), batch_sample(USUAL), BALANCED)
    return _minus(batch, measured.by_seed(row.at(mode), SAMPLE, BALANCED))


def _over_rival(rival: str, metric: str, measured: Measured, row: TableCell, mode: str) -> BySeed:
    """The gain where it can show: not where both have come to the end of the scale."""
    cell = row.at(mode, USUAL)
    wise, other = measured.by_seed(cell, batch_batch(USUAL), "auc"), measured.by_seed(cell, rival, metric)
    return {
        seed: gain for seed, gain in _minus(wise, other).items() if min(wise[seed], other[seed]) < SATURATED
    }


def _mitigation(what: tuple[str, str], measured: Measured, row: TableCell, mode: str) -> BySeed:
    return _minus(measured.by_seed(row.at("central"), *what), measured.by_seed(row.at(mode), *what))


def _matched_mitigation(measured: Measured, row: TableCell, mode: str) -> BySeed:
    pair = row.matched(mode), row.at(mode)
    fits = _minus(*(measured.by_seed(cell, None, "train-accuracy") for cell in pair))
    leaks = _minus(*(measured.by_seed(cell, *LOSS) for cell in pair))
    return {seed: change for seed, change in leaks.items() if seed in fits and abs(fits[seed]) <= MATCHED}


def _slope(
    attack: Callable[[int], str], metric: str, measured: Measured, row: TableCell, mode: str
) -> BySeed:
    """The change of a metric with each doubling of the batch size; none where few sizes were measured."""
    sizes = cells.batch_sizes(measured, row)
    if len(sizes) < 3:
        return {}
    points = [measured.by_seed(row.at(mode, size), attack(size), metric) for size in sizes]
    doublings = [math.log2(size) for size in sizes]
    whole = set.intersection(*(set(values) for values in points))
    return {
        seed: float(np.polyfit(doublings, [values[seed] for values in points], 1)[0])
        for seed in sorted(whole)
        if min(values[seed] for values in points) < SATURATED
    }


def _over_modes(measured: Measured, value: Value) -> dict[Unit, float]:
    """The mean over the ways of training, for each data set and seed."""
    gathered: dict[Unit, list[float]] = {}
    for mode in cells.MODES:
        for unit, number in _units(measured, value, mode).items():
            gathered.setdefault(unit, []).append(number)
    return {unit: float(np.mean(numbers)) for unit, numbers in gathered.items()}


def _units(measured: Measured, value: Value, mode: str) -> dict[Unit, float]:
    return {
        (row.data, row.model, seed): number
        for row in cells.table_rows(measured)
        for seed, number in value(measured, row, mode).items()
    }


def _minus(a: BySeed, b: BySeed) -> BySeed:
    return {seed: a[seed] - b[seed] for seed in a if seed in b}
