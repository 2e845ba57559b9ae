"""The paper's three claims against what was measured.

A target is a model trained on one data set with one seed in one of four ways. Targets of one data set and
seed share their records and shadow models, so they are averaged first, and then the seeds of a data set; the
intervals are over data sets, or over seeds where a claim was tested on fewer than three of them.
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
SATURATED = 0.995
"""Above this an AUC has no room left to differ."""
MATCHED = 0.03
"""Train accuracies that differ by no more count as matched."""

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
            made.append(_judge(title, _units(measured, value, mode), what))
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


def _judge(claim: str, values: Mapping[Unit, float], what: str) -> Verdict:
    found = _over_units(values)
    if found is None or found.low is None or found.high is None:
        return _open(claim, values)
    if found.low > -NEGLIGIBLE and found.high < NEGLIGIBLE:
        verdict = "refuted: no difference"
    elif found.low > 0:
        verdict = "holds"
    elif found.high < 0:
        verdict = "refuted: it is the other way round"
    else:
        verdict = "not shown"
    return Verdict(claim, verdict, _reason(what, found, values))


def _judge_equal(claim: str, slopes: Mapping[Unit, float]) -> Verdict:
    found = _over_units(slopes)
    if found is None or found.low is None or found.high is None:
        return _open(claim, slopes)
    within = found.low > -NEGLIGIBLE and found.high < NEGLIGIBLE
    away = found.low > 0 or found.high < 0
    verdict = "holds" if within else "refuted" if away else "not shown"
    return Verdict(claim, verdict, _reason("change with each doubling", found, slopes))


def _over_units(values: Mapping[Unit, float]) -> Estimate | None:
    """The mean and its t interval: over data sets and networks, or over seeds where these are below 3."""
    rows: dict[tuple[str, str], list[float]] = {}
    for (data, model, _), value in values.items():
        rows.setdefault((data, model), []).append(value)
    means = [float(np.mean(own)) for own in rows.values()]
    gathered = means if len(means) >= 3 else list(values.values())
    return mean(gathered) if len(gathered) >= 2 else None


def _open(claim: str, values: Mapping[Unit, float]) -> Verdict:
    reason = (
        f"{len(values)} comparisons could be made (seeds that are done, not saturated, matched where asked); "
        "it takes at least 2"
    )
    return Verdict(claim, "open", reason)


def _reason(what: str, found: Estimate, values: Mapping[Unit, float]) -> str:
    rows = {(data, model) for data, model, _ in values}
    unit = "data sets and networks" if len(rows) >= 3 else f"seeds on {_named(rows)}"
    return (
        f"{what}: {found.value:+.4f}, 95% interval {found.low:+.4f} to {found.high:+.4f}, "
        f"n = {found.n} {unit} ({len(values)} comparisons)"
    )


def _named(rows: Iterable[tuple[str, str]]) -> str:
    return " and ".join(f"{data} with {model}" for data, model in sorted(rows))


def _minus(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    return {seed: a[seed] - b[seed] for seed in a if seed in b}
