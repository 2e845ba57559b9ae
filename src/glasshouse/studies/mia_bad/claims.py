"""The paper's three claims against what was measured.

A target is a model trained on one data set with one seed in one of four ways. Targets of one data set and
seed share their records and shadow models, so they are averaged first, and then the seeds of a data set; the
intervals are over data sets, or over seeds where a claim was tested on fewer than three of them.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from glasshouse.studies.mia_bad.cells import NULL_CURVE, SAMPLE, batch_batch, batch_sample
from glasshouse.studies.mia_bad.measured import Measured
from glasshouse.verdicts.claims import Unit, Verdict, judge, judge_flat

MODES = ("central", "2-clients", "5-clients", "10-clients")
FEDERATED = MODES[1:]
USUAL = 32
NEGLIGIBLE = 0.005
"""A change of less than half a point is none."""
SATURATED = 0.995
"""Above this an AUC has no room left to differ."""
MATCHED = 0.03
"""Train accuracies that differ by no more count as matched."""
COMPARED = "seeds that are done, not saturated, matched where asked"

Value = Callable[[Measured, str, str], dict[int, float]]
"""From what was measured, a row of the tables and a way of training, to a number for each seed."""


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim, under each protocol that it could mean."""
    made = [
        _judged(f"Batch-wise is better ({how})", _over_modes(measured, value), what)
        for how, value, what in (
            ("judging single records: balanced accuracy", _batch_gain, "batch-wise minus sample-wise"),
            ("judging batches: AUC above the mean loss's", _over_set_loss, "AUC minus that of the mean loss"),
            ("judging batches: AUC above the null curve", _over_null, "AUC minus the null curve"),
        )
    ]
    made += [
        judge_flat(
            f"The gain does not depend on the batch size ({how})",
            _over_modes(measured, slope),
            "change with each doubling",
            margin=NEGLIGIBLE,
            where=COMPARED,
        )
        for how, slope in (
            ("judging single records: balanced accuracy", partial(_slope, batch_sample, "balanced-accuracy")),
            ("judging batches: AUC", partial(_slope, batch_batch, "auc")),
        )
    ]
    for claim, value, what in (
        (
            "Federation mitigates",
            _mitigation,
            "balanced accuracy, sample-sample, central minus federated (the shadow models are central, so "
            "their threshold fits a federated target less)",
        ),
        (
            "Federation mitigates, whatever the threshold",
            _mitigation_of_loss,
            "AUC of the loss, central minus federated",
        ),
        (
            "Federation mitigates at matched train accuracy",
            _matched_mitigation,
            f"AUC of the loss, stopped central minus federated, train accuracies within {MATCHED}",
        ),
    ):
        for mode in FEDERATED:
            title = f"{claim} ({mode.replace('-', ' ')})"
            made.append(_judged(title, _units(measured, value, mode), what))
    return made


def _batch_gain(measured: Measured, head: str, mode: str) -> dict[int, float]:
    batch = measured.by_seed(f"{head}/{mode}/{USUAL}", batch_sample(USUAL), "balanced-accuracy")
    single = measured.by_seed(f"{head}/{mode}/sample", SAMPLE, "balanced-accuracy")
    return _minus(batch, single)


def _over_set_loss(measured: Measured, head: str, mode: str) -> dict[int, float]:
    cell = f"{head}/{mode}/{USUAL}"
    own = measured.by_seed(cell, batch_batch(USUAL), "auc")
    rival = measured.by_seed(cell, f"set-loss(batch_size={USUAL})", "auc")
    return _unsaturated(own, rival)


def _over_null(measured: Measured, head: str, mode: str) -> dict[int, float]:
    cell = f"{head}/{mode}/{USUAL}"
    own = measured.by_seed(cell, batch_batch(USUAL), "auc")
    return _unsaturated(own, measured.by_seed(cell, NULL_CURVE, "null-auc"))


def _unsaturated(own: Mapping[int, float], rival: Mapping[int, float]) -> dict[int, float]:
    """The differences where they can show: not where both have come to the end of the scale."""
    return {
        seed: gain for seed, gain in _minus(own, rival).items() if min(own[seed], rival[seed]) < SATURATED
    }


def _mitigation(measured: Measured, head: str, mode: str) -> dict[int, float]:
    values = [
        measured.by_seed(f"{head}/{own}/sample", SAMPLE, "balanced-accuracy") for own in ("central", mode)
    ]
    return _minus(*values)


def _mitigation_of_loss(measured: Measured, head: str, mode: str) -> dict[int, float]:
    values = [measured.by_seed(f"{head}/{own}/sample", "loss-threshold", "auc") for own in ("central", mode)]
    return _minus(*values)


def _matched_mitigation(measured: Measured, head: str, mode: str) -> dict[int, float]:
    stopped, federated = f"matched/{head.partition('/')[2]}/{mode}", f"{head}/{mode}/sample"
    fits = [measured.by_seed(cell, None, "train-accuracy") for cell in (stopped, federated)]
    close = {seed for seed, gap in _minus(*fits).items() if abs(gap) <= MATCHED}
    leaks = [measured.by_seed(cell, "loss-threshold", "auc") for cell in (stopped, federated)]
    return {seed: change for seed, change in _minus(*leaks).items() if seed in close}


def _slope(
    attack: Callable[[int], str], metric: str, measured: Measured, head: str, mode: str
) -> dict[int, float]:
    """The change of a metric with each doubling of the batch size; none where few sizes were measured."""
    table, data, model = head.split("/")
    sizes = [int(column) for column in measured.columns((table, data, model)) if column != "sample"]
    if len(sizes) < 3:
        return {}
    points = [measured.by_seed(f"{head}/{mode}/{size}", attack(size), metric) for size in sizes]
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
        for unit, own in _units(measured, value, mode).items():
            gathered.setdefault(unit, []).append(own)
    return {unit: float(np.mean(values)) for unit, values in gathered.items()}


def _units(measured: Measured, value: Value, mode: str) -> dict[Unit, float]:
    return {
        (data, model, seed): own
        for table, data, model in measured.rows()
        for seed, own in value(measured, f"{table}/{data}/{model}", mode).items()
    }


def _judged(claim: str, values: Mapping[Unit, float], what: str) -> Verdict:
    return judge(claim, values, what, negligible=NEGLIGIBLE, where=COMPARED)


def _minus(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    return {seed: a[seed] - b[seed] for seed in a if seed in b}
