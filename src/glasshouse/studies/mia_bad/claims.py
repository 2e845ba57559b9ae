"""The paper's three claims against what was measured.

A target is a model trained on one data set with one seed in one of four ways. Targets of one data set and
seed share their records and shadow models, so they are averaged first, and then the seeds of a data set; the
intervals are over data sets, or over seeds where a claim was tested on fewer than three of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad.cells import (
    FEDERATED,
    MODES,
    NULL_CURVE,
    SAMPLE,
    USUAL,
    TableCell,
    batch_batch,
    batch_sample,
    batch_sizes,
    table_rows,
)
from glasshouse.verdicts.claims import Unit, Verdict, judge, judge_flat

NEGLIGIBLE = 0.005
"""A change of less than half a point is none."""
SATURATED = 0.995
"""Above this an AUC has no room left to differ."""
MATCHED = 0.03
"""Train accuracies that differ by no more count as matched."""
COMPARED = "seeds that are done, not saturated, matched where asked"

BySeed = Mapping[int, float]
Value = Callable[[Measured, TableCell, str], BySeed]
"""From what was measured, a row of the tables and a way of training, to a number for each seed."""


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim, under each protocol that it could mean."""
    return [*_batch_wise(measured), *_batch_size(measured), *_federation(measured)]


def _batch_wise(measured: Measured) -> Iterator[Verdict]:
    over_loss = partial(_over_rival, f"set-loss(batch_size={USUAL})", "auc")
    over_null = partial(_over_rival, NULL_CURVE, "null-auc")
    meanings: list[tuple[str, Value, str]] = [
        ("judging single records: balanced accuracy", _gain, "batch-wise minus sample-wise"),
        ("judging batches: AUC above the mean loss's", over_loss, "AUC minus that of the mean loss"),
        ("judging batches: AUC above the null curve", over_null, "AUC minus the null curve"),
    ]
    for meaning, value, what in meanings:
        yield _judged(f"Batch-wise is better ({meaning})", _over_modes(measured, value), what)


def _batch_size(measured: Measured) -> Iterator[Verdict]:
    meanings = {
        "judging single records: balanced accuracy": partial(_slope, batch_sample, "balanced-accuracy"),
        "judging batches: AUC": partial(_slope, batch_batch, "auc"),
    }
    for meaning, slope in meanings.items():
        yield judge_flat(
            f"The gain does not depend on the batch size ({meaning})",
            _over_modes(measured, slope),
            "change with each doubling",
            margin=NEGLIGIBLE,
            where=COMPARED,
        )


def _federation(measured: Measured) -> Iterator[Verdict]:
    meanings: list[tuple[str, Value, str]] = [
        (
            "Federation mitigates",
            partial(_mitigation, SAMPLE, "balanced-accuracy"),
            "balanced accuracy, sample-sample, central minus federated (the shadow models are central, so "
            "their threshold fits a federated target less)",
        ),
        (
            "Federation mitigates, whatever the threshold",
            partial(_mitigation, "loss-threshold", "auc"),
            "AUC of the loss, central minus federated",
        ),
        (
            "Federation mitigates at matched train accuracy",
            _matched_mitigation,
            f"AUC of the loss, stopped central minus federated, train accuracies within {MATCHED}",
        ),
    ]
    for claim, value, what in meanings:
        for mode in FEDERATED:
            title = f"{claim} ({mode.replace('-', ' ')})"
            yield _judged(title, _units(measured, value, mode), what)


def _gain(measured: Measured, row: TableCell, mode: str) -> BySeed:
    batch = measured.by_seed(row.at(mode, USUAL), batch_sample(USUAL), "balanced-accuracy")
    single = measured.by_seed(row.at(mode), SAMPLE, "balanced-accuracy")
    return _minus(batch, single)


def _over_rival(rival: str, metric: str, measured: Measured, row: TableCell, mode: str) -> BySeed:
    """The gain where it can show: not where both have come to the end of the scale."""
    cell = row.at(mode, USUAL)
    wise = measured.by_seed(cell, batch_batch(USUAL), "auc")
    other = measured.by_seed(cell, rival, metric)
    return {
        seed: gain for seed, gain in _minus(wise, other).items() if min(wise[seed], other[seed]) < SATURATED
    }


def _mitigation(attack: str, metric: str, measured: Measured, row: TableCell, mode: str) -> BySeed:
    central, federated = (measured.by_seed(row.at(trained), attack, metric) for trained in ("central", mode))
    return _minus(central, federated)


def _matched_mitigation(measured: Measured, row: TableCell, mode: str) -> BySeed:
    cells = row.matched(mode), row.at(mode)
    fits = _minus(*(measured.by_seed(cell, None, "train-accuracy") for cell in cells))
    leaks = _minus(*(measured.by_seed(cell, "loss-threshold", "auc") for cell in cells))
    return {seed: change for seed, change in leaks.items() if seed in fits and abs(fits[seed]) <= MATCHED}


def _slope(
    attack: Callable[[int], str], metric: str, measured: Measured, row: TableCell, mode: str
) -> BySeed:
    """The change of a metric with each doubling of the batch size; none where few sizes were measured."""
    sizes = batch_sizes(measured, row)
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
    for mode in MODES:
        for unit, number in _units(measured, value, mode).items():
            gathered.setdefault(unit, []).append(number)
    return {unit: float(np.mean(numbers)) for unit, numbers in gathered.items()}


def _units(measured: Measured, value: Value, mode: str) -> dict[Unit, float]:
    return {
        (row.data, row.model, seed): number
        for row in table_rows(measured)
        for seed, number in value(measured, row, mode).items()
    }


def _judged(claim: str, values: Mapping[Unit, float], what: str) -> Verdict:
    return judge(claim, values, what, negligible=NEGLIGIBLE, where=COMPARED)


def _minus(a: BySeed, b: BySeed) -> BySeed:
    return {seed: a[seed] - b[seed] for seed in a if seed in b}
