"""What is measured in each cell: attacks on one target, in one column of the paper's tables."""

from collections.abc import Iterable

import numpy as np

from glasshouse.access import QueryAccess
from glasshouse.auditing.scoring import Score, score
from glasshouse.auditing.trial import Examination, Trial
from glasshouse.errors import CannotRun
from glasshouse.evidence.membership import MembershipScores
from glasshouse.findings import Finding
from glasshouse.learning.evaluate import hits
from glasshouse.learning.seeds import numpy_rng
from glasshouse.measures.comparing import auc_difference, permutation_null
from glasshouse.measures.estimate import Estimate, combined, proportion
from glasshouse.measures.membership import accuracy_at_mix, auc, majority_rate, null_curve
from glasshouse.studies.mia_bad.printed import mix, printed
from glasshouse.studies.mia_bad.targets import Court, Target

SAMPLE = "mia-bad(protocol='sample-sample')"
SINGLE_RIVALS = ("loss-threshold", "gap", "shokri", "lira", "rmia")
SET_RIVALS = ("set-loss", "set-vote", "set-llr")
NULL_CURVE = "null-curve"
SHUFFLES = 1000


def batch_sample(batch: int) -> str:
    """The attack that learns from batches of this size and judges single records."""
    return f"mia-bad(protocol='batch-sample',batch_size={batch})"


def batch_batch(batch: int) -> str:
    """The attack that learns from batches of this size and judges such batches."""
    return f"mia-bad(protocol='batch-batch',batch_size={batch})"


def sample_column(court: Court, target: Target) -> list[Finding]:
    """The sample-wise attack, its rivals on single records, and how well the target fits its data."""
    rows = fitting(court.trial)
    rows += attacked(court, target, "sample", (SAMPLE, *SINGLE_RIVALS))
    return rows + _shuffled(court)


def batch_column(court: Court, target: Target, batch: int) -> list[Finding]:
    """Both batch-wise protocols, the rivals on the same batches, and the null curve."""
    rivals = [f"{name}(batch_size={batch})" for name in SET_RIVALS]
    rows = attacked(court, target, str(batch), (batch_sample(batch), batch_batch(batch), *rivals))
    return rows + _null(court, batch) + _gain(court, batch)


def matched_column(court: Court, target: Target, batch: int) -> list[Finding]:
    """The same attacks on a central model that fits its data as well as the federated one does."""
    single = attacked(court, target, None, (SAMPLE, "loss-threshold", "lira", batch_sample(batch)))
    return fitting(court.trial) + single + attacked(court, target, None, (batch_batch(batch),))


def attacked(court: Court, target: Target, column: str | None, specs: Iterable[str]) -> list[Finding]:
    """All metrics of some attacks; raw accuracy at the paper's mix of members and others comes first."""
    rows = []
    for spec in specs:
        try:
            seen = court.examine(spec)
            scores = [raw_accuracy(seen, target.data), *score(seen.evidence, seen.truth)]
        except CannotRun as reason:
            empty: dict[str, object] = {"metric": "not-applicable", "value": None, "assumes": (str(reason),)}
            rows.append(court.trial.finding(spec, QueryAccess, **empty))
            continue
        for found in scores:
            entries = seen.entries(found)
            if found.metric.startswith("accuracy-at") and column and spec.startswith("mia-bad"):
                entries["printed"] = printed(target.data, target.mode, column)
            rows.append(court.trial.finding(spec, QueryAccess, **entries))
    return rows


def raw_accuracy(seen: Examination, data: str) -> Score:
    """The share of right decisions where members are as frequent as in the paper; chance: always "member"."""
    assert isinstance(seen.evidence, MembershipScores)
    ratio = mix(data)
    estimate = accuracy_at_mix(seen.evidence.decisions, seen.truth.member, ratio)
    return Score(f"accuracy-at-{ratio}:1", estimate, majority_rate(ratio))


def fitting(trial: Trial) -> list[Finding]:
    """Train accuracy, test accuracy and the gap between them."""
    right = {
        part: hits(trial.grantor.model, trial.experiment.split.images(part)) for part in ("members", "test")
    }
    train, test = (proportion(int(own.sum()), len(own)) for own in right.values())
    gap = combined((train, test), (1.0, -1.0))
    named = {"train-accuracy": train, "test-accuracy": test, "train-test-gap": gap}
    return [
        trial.experiment.finding(
            cell="fitting",
            family="utility",
            strategy=trial.strategy,
            defence="none",
            metric=metric,
            **estimate.entries(),
        )
        for metric, estimate in named.items()
    ]


def _shuffled(court: Court) -> list[Finding]:
    """How often scores with shuffled truth reach the AUC of the sample-wise attack."""
    rng = numpy_rng(court.trial.experiment.setting.seed, "permutation null")
    try:
        null = permutation_null(auc, *_scored(court, SAMPLE), rng, SHUFFLES)
    except CannotRun:
        return []
    return [
        court.trial.finding(SAMPLE, QueryAccess, metric="permutation-p", value=null.p_value, n=null.draws)
    ]


def _null(court: Court, batch: int) -> list[Finding]:
    """The AUC that plain averaging over batches gives Gaussian scores as separable as single losses are."""
    try:
        single = auc(*_scored(court, "loss-threshold"))
    except CannotRun:
        return []
    return [_row(court, NULL_CURVE, "null-auc", null_curve(single, batch))]


def _gain(court: Court, batch: int) -> list[Finding]:
    """AUC of the batch-wise attack minus that of the mean-loss threshold, on the same batches."""
    try:
        scores, member = _scored(court, batch_batch(batch))
        rival, _ = _scored(court, f"set-loss(batch_size={batch})")
    except CannotRun:
        return []
    return [_row(court, batch_batch(batch), "auc-over-set-loss", auc_difference(scores, rival, member), 0.0)]


def _scored(court: Court, spec: str) -> tuple[np.ndarray, np.ndarray]:
    seen = court.examine(spec)
    assert isinstance(seen.evidence, MembershipScores)
    return seen.evidence.scores, seen.truth.member


def _row(court: Court, attack: str, metric: str, estimate: Estimate, chance: float | None = None) -> Finding:
    return court.trial.experiment.finding(
        cell=attack,
        family="batch-membership",
        adversary=QueryAccess.adversary,
        attack=attack,
        defence="none",
        strategy=court.trial.strategy,
        metric=metric,
        **estimate.entries(),
        chance=chance,
        assumes=(estimate.note,) if estimate.note else (),
    )
