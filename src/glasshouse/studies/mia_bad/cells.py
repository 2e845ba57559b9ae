"""What is measured in each cell: attacks on one target, in one column of the paper's tables."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glasshouse.access import QueryAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import declared
from glasshouse.auditing.examine import Examination
from glasshouse.evidence.evidence import Score
from glasshouse.evidence.membership import MembershipScores
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.seeds import numpy_rng
from glasshouse.measures.comparing import permutation_null, share_difference
from glasshouse.measures.estimate import Estimate, combined, proportion
from glasshouse.measures.membership import accuracy_at_mix, auc, majority_rate, null_curve
from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad.printed import mix, printed
from glasshouse.studies.mia_bad.training import TrainedTarget
from glasshouse.studies.study import CellResult

MODES = ("central", "2-clients", "5-clients", "10-clients")
FEDERATED = MODES[1:]
USUAL = 32
"""The batch size of claims, and of tables that show one."""

SAMPLE = "mia-bad(protocol='sample-sample')"
SINGLE_RIVALS = ("loss-threshold", "gap", "shokri", "lira", "rmia")
SET_RIVALS = ("set-loss", "set-vote", "set-llr")
NULL_CURVE = "null-curve"
BALANCED = "balanced-accuracy"
SHUFFLES = 1000

batch_sample = "mia-bad(protocol='batch-sample',batch_size={})".format
batch_batch = "mia-bad(protocol='batch-batch',batch_size={})".format
"""The attacks that learn from batches of a size, and judge single records or such batches."""


@dataclass(frozen=True)
class TableCell(Address):
    """A cell of Tables I and II, whose column is `sample` or a batch size; the first stands for its row."""

    pattern: ClassVar[str] = "{table}/{data}/{model}/{mode}/{column}"
    table: str
    data: str
    model: str
    mode: str = "central"
    column: str = "sample"

    def at(self, mode: str, column: str | int = "sample") -> str:
        """The name of another cell in this row."""
        return str(dataclasses.replace(self, mode=mode, column=str(column)))

    def matched(self, mode: str) -> str:
        """The name of the cell whose central model fits its data as well as one trained in this mode."""
        return f"matched/{self.data}/{self.model}/{mode}"


def table_rows(measured: Measured) -> dict[TableCell, list[str]]:
    """The rows that have finished cells, in order, and the columns of these."""
    rows: dict[TableCell, list[str]] = {}
    for cell in TableCell.matching(measured.cells):
        columns = rows.setdefault(TableCell(cell.table, cell.data, cell.model), [])
        columns += [cell.column] if cell.column not in columns else []
    return rows


def batch_sizes(measured: Measured, row: TableCell) -> list[int]:
    """The batch sizes among the columns of a row."""
    return [int(column) for column in table_rows(measured)[row] if column != "sample"]


def sample_column(target: TrainedTarget, own: str = "") -> list[Finding]:
    """The sample-wise attack, its rivals on single records, and how well the target fits its data.

    A user's `own` attack on single records is one more rival.
    """
    rivals = (*SINGLE_RIVALS, *_of_unit(own, 1))
    findings = _fitting(target) + _attacked(target, "sample", (SAMPLE, *rivals))
    examination = target.examine(SAMPLE)
    if examination.reason is None:
        rng = numpy_rng(target.case.subject.seed or 0, "permutation null")
        evidence, member = _membership(examination)
        null = permutation_null(auc, evidence.scores, member, rng, SHUFFLES)
        p_value = Estimate(null.p_value, None, None, null.draws)
        findings.append(examination.finding(Score("permutation-p", p_value)))
    return findings


def batch_column(target: TrainedTarget, own: str = "", *, batch: int) -> list[Finding]:
    """Both batch-wise protocols and their gain, the rivals on the same batches, and the null curve.

    A user's `own` attack on batches of this size is one more rival.
    """
    wise = (batch_sample(batch), batch_batch(batch))
    rivals = [*(f"{name}(batch_size={batch})" for name in SET_RIVALS), *_of_unit(own, batch)]
    findings = _attacked(target, str(batch), (*wise, *rivals))
    findings += [finding for spec in wise for finding in _gains(target, spec)]
    single = target.examine("loss-threshold")
    if single.reason is None:
        # What plain averaging over batches gives Gaussian scores as separable as single losses are.
        losses, member = _membership(single)
        null = null_curve(auc(losses.scores, member), batch)
        outsider, subject = QueryAccess.adversary, target.case.subject
        findings.append(
            subject.finding("batch-membership", "null-auc", null, adversary=outsider, attack=NULL_CURVE)
        )
    return findings


def matched_column(target: TrainedTarget, own: str = "") -> list[Finding]:
    """The loss of a central model that fits its data as well as the federated one does; no other attack."""
    return _fitting(target) + _attacked(target, None, ("loss-threshold",))


def own_metric(data: str) -> str:
    """The paper's metric: accuracy at its mix of members and others."""
    return f"accuracy-at-{mix(data)}:1"


def gain_in(metric: str) -> str:
    """The metric of how much more a batch-wise attack has than the sample-wise one."""
    return f"{metric}-over-sample"


def gains(
    measured: Measured, row: TableCell, mode: str, attack: Callable[[int], str], metric: str
) -> dict[int, Estimate]:
    """The gain of a batch-wise attack at each seed, the mean over the batch sizes of a row.

    All sizes are measured on the same records, so the ends of their intervals are averaged too.
    """
    by_size = [
        measured.seeds_of(row.at(mode, size), attack(size), gain_in(metric))
        for size in batch_sizes(measured, row)
    ]
    whole = set.intersection(*map(set, by_size)) if by_size else set()
    return {seed: _averaged([seeds[seed] for seeds in by_size]) for seed in sorted(whole)}


def with_scores(target: TrainedTarget, findings: list[Finding]) -> CellResult:
    """The findings of a column, and what its attacks said of each record."""
    attacks = dict.fromkeys(finding.attack for finding in findings if finding.attack)
    kept = [target.examine(spec).exhibits().records for spec in attacks if spec != NULL_CURVE]
    return CellResult(findings, Exhibits(records=tuple(one for records in kept for one in records)))


def _of_unit(own: str, unit: int) -> tuple[str, ...]:
    """The user's own attack, where it asks about so many records at once."""
    return (own,) if own and declared(ATTACKS.make(own), "query_unit") == unit else ()


def _averaged(estimates: Sequence[Estimate]) -> Estimate:
    value, low, high = (
        None if None in column else float(np.mean(column))
        for column in zip(*((one.value, one.low, one.high) for one in estimates))
    )
    return Estimate(value, low, high, max(one.n for one in estimates))


def _gains(target: TrainedTarget, spec: str) -> list[Finding]:
    """By how much an attack that learns from batches is more accurate than the sample-wise one.

    The two are compared record by record where both judge records, else as if independent.
    """
    wise, single = target.examine(spec), target.examine(SAMPLE)
    if wise.reason is not None or single.reason is not None:
        return []
    (mine, member), (other, truth) = _right(wise), _right(single)
    sides: list[Estimate] = []
    for inside in (True, False):
        a, b = mine[member == inside], other[truth == inside]
        paired = len(mine) == len(other)
        sides.append(share_difference(a, b) if paired else _difference(a, b))
    data = target.case.subject.data or ""
    share = majority_rate(mix(data))
    weights = {own_metric(data): (share, 1 - share), BALANCED: (0.5, 0.5)}
    return [
        wise.finding(Score(gain_in(metric), combined(sides, weight), 0.0))
        for metric, weight in weights.items()
    ]


def _difference(a: np.ndarray, b: np.ndarray) -> Estimate:
    return combined([proportion(int(one.sum()), len(one)) for one in (a, b)], (1.0, -1.0))


def _right(examination: Examination) -> tuple[np.ndarray, np.ndarray]:
    """Which answers are right, and which are about members."""
    evidence, member = _membership(examination)
    return evidence.decisions == member, member


def _attacked(target: TrainedTarget, column: str | None, specs: Iterable[str]) -> list[Finding]:
    """All metrics of some attacks; raw accuracy at the paper's mix of members and others comes first."""
    findings = []
    for spec in specs:
        examination = target.examine(spec)
        if examination.reason is None:
            data = target.case.subject.data or ""
            paper = printed(data, target.mode, column) if column and spec.startswith("mia-bad") else None
            findings.append(examination.finding(raw_accuracy(examination, data), printed=paper))
        findings += examination.findings()
    return findings


def raw_accuracy(examination: Examination, data: str) -> Score:
    """The share of right decisions where members are as frequent as in the paper; chance: always "member"."""
    (evidence, member), ratio = _membership(examination), mix(data)
    return Score(own_metric(data), accuracy_at_mix(evidence.decisions, member, ratio), majority_rate(ratio))


def _fitting(target: TrainedTarget) -> list[Finding]:
    gap = combined((target.train, target.test), (1.0, -1.0))
    fits = {"train-accuracy": target.train, "test-accuracy": target.test, "train-test-gap": gap}
    return [target.case.subject.finding("utility", metric, fit) for metric, fit in fits.items()]


def _membership(examination: Examination) -> tuple[MembershipScores, np.ndarray]:
    """The answers about records or batches, and which of these were trained on."""
    assert isinstance(examination.evidence, MembershipScores)
    assert examination.question is not None
    return examination.evidence, examination.question.member
