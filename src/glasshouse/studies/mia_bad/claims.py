"""The paper's three claims against what was measured.

A target is a model trained on one data set with one seed in one of four ways. Targets of one data set and
seed share their records and shadow models, so the unit of all intervals is the data set with its seed.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies.mia_bad.cells import NULL_CURVE, SAMPLE, batch_batch, batch_sample
from glasshouse.studies.mia_bad.measured import Measured
from glasshouse.studies.study import Verdict

MODES = ("central", "2-clients", "5-clients", "10-clients")
FEDERATED = MODES[1:]
USUAL = 32
NEGLIGIBLE = 0.005
"""A change of less than half a point is none."""

Unit = tuple[str, str, int]
"""Data set, model and seed."""

Value = Callable[[Measured, str, str], dict[int, float]]
"""From what was measured, a row of the tables and a way of training, to a number for each seed."""


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim, under each protocol that it could mean."""
    made = [
        _judge(f"Batch-wise is better ({how})", _over_modes(measured, value), what)
        for how, value, what in (
            ("judging single records: balanced accuracy", _batch_gain, "batch-wise minus sample-wise"),
            ("judging batches: AUC above the mean loss's", _over_set_loss, "AUC minus that of the mean loss"),
            ("judging batches: AUC above the null curve", _over_null, "AUC minus the null curve"),
        )
    ]
    made += [
        _judge_equal(f"The gain does not depend on the batch size ({how})", _over_modes(measured, slope))
        for how, slope in (
            ("judging single records: balanced accuracy", partial(_slope, batch_sample, "balanced-accuracy")),
            ("judging batches: AUC", partial(_slope, batch_batch, "auc")),
        )
    ]
    for claim, value, what in (
        ("Federation mitigates", _mitigation, "balanced accuracy, sample-sample, central minus federated"),
        (
            "Federation mitigates, whatever the threshold",
            _mitigation_of_loss,
            "AUC of the loss, central minus federated",
        ),
        (
            "Federation mitigates at matched train accuracy",
            _matched_mitigation,
            "AUC of the loss, stopped central minus federated",
        ),
    ):
        for mode in FEDERATED:
            title = f"{claim} ({mode.replace('-', ' ')})"
            made.append(_judge(title, _units(measured, value, mode), what))
    return made


def _batch_gain(measured: Measured, head: str, mode: str) -> dict[int, float]:
    batch = measured.by_seed(f"{head}/{mode}/{USUAL}", batch_sample(USUAL), "balanced-accuracy")
    single = measured.by_seed(f"{head}/{mode}/sample", SAMPLE, "balanced-accuracy")
    return _minus(batch, single)


def _over_set_loss(measured: Measured, head: str, mode: str) -> dict[int, float]:
    return measured.by_seed(f"{head}/{mode}/{USUAL}", batch_batch(USUAL), "auc-over-set-loss")


def _over_null(measured: Measured, head: str, mode: str) -> dict[int, float]:
    cell = f"{head}/{mode}/{USUAL}"
    return _minus(
        measured.by_seed(cell, batch_batch(USUAL), "auc"), measured.by_seed(cell, NULL_CURVE, "null-auc")
    )


def _mitigation(measured: Measured, head: str, mode: str) -> dict[int, float]:
    values = [
        measured.by_seed(f"{head}/{own}/sample", SAMPLE, "balanced-accuracy") for own in ("central", mode)
    ]
    return _minus(*values)


def _mitigation_of_loss(measured: Measured, head: str, mode: str) -> dict[int, float]:
    values = [measured.by_seed(f"{head}/{own}/sample", "loss-threshold", "auc") for own in ("central", mode)]
    return _minus(*values)


def _matched_mitigation(measured: Measured, head: str, mode: str) -> dict[int, float]:
    matched = measured.by_seed(f"matched/{head.partition('/')[2]}/{mode}", "loss-threshold", "auc")
    return _minus(matched, measured.by_seed(f"{head}/{mode}/sample", "loss-threshold", "auc"))


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
    return {
        seed: float(np.polyfit(doublings, [values[seed] for values in points], 1)[0])
        for seed in sorted(set.intersection(*(set(values) for values in points)))
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


def _judge(claim: str, values: Mapping[Unit, float], what: str) -> Verdict:
    found, missing = _estimate(claim, values.values())
    if missing is not None:
        return missing
    low, high = found.low or 0.0, found.high or 0.0
    if low > NEGLIGIBLE:
        verdict = "holds"
    elif high < -NEGLIGIBLE:
        verdict = "refuted: it is the other way round"
    elif low > -NEGLIGIBLE and high < NEGLIGIBLE:
        verdict = "refuted: no difference"
    else:
        verdict = "not shown"
    return Verdict(claim, verdict, _reason(what, found))


def _judge_equal(claim: str, slopes: Mapping[Unit, float]) -> Verdict:
    found, missing = _estimate(claim, slopes.values())
    if missing is not None:
        return missing
    low, high = found.low or 0.0, found.high or 0.0
    within = low > -NEGLIGIBLE and high < NEGLIGIBLE
    away = low > 0 or high < 0
    verdict = "holds" if within else "refuted" if away else "not shown"
    return Verdict(claim, verdict, _reason("change with each doubling", found))


def _estimate(claim: str, values: Iterable[float]) -> tuple[Estimate, Verdict | None]:
    gathered = list(values)
    if len(gathered) < 2:
        reason = f"{len(gathered)} data sets and seeds are finished; it takes at least 2"
        return Estimate(None, None, None, len(gathered)), Verdict(claim, "open", reason)
    return mean(gathered), None


def _reason(what: str, found: Estimate) -> str:
    return (
        f"{what}: {found.value:+.4f}, 95% interval {found.low:+.4f} to {found.high:+.4f}, "
        f"n = {found.n} (data set, model and seed)"
    )


def _minus(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    return {seed: a[seed] - b[seed] for seed in a if seed in b}
