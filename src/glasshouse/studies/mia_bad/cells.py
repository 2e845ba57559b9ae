"""What is measured in each cell: attacks on one target, in one column of the paper's tables."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from glasshouse.access import QueryAccess
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.experiment import Experiment, prepare
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import CENTRAL, Variant, train_target
from glasshouse.evidence.evidence import Score
from glasshouse.evidence.membership import MembershipScores
from glasshouse.findings import Finding
from glasshouse.learning.evaluate import hits
from glasshouse.learning.seeds import numpy_rng
from glasshouse.measures.comparing import auc_difference, permutation_null
from glasshouse.measures.estimate import Estimate, combined, proportion
from glasshouse.measures.membership import accuracy_at_mix, auc, majority_rate, null_curve
from glasshouse.runfolder import RunFolder
from glasshouse.store import write_bytes
from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad.printed import mix, printed
from glasshouse.studies.study import Latest, Workplace

MODES = ("central", "2-clients", "5-clients", "10-clients")
FEDERATED = MODES[1:]
USUAL = 32
"""The batch size of claims, and of tables that show one."""

SAMPLE = "mia-bad(protocol='sample-sample')"
SINGLE_RIVALS = ("loss-threshold", "gap", "shokri", "lira", "rmia")
SET_RIVALS = ("set-loss", "set-vote", "set-llr")
NULL_CURVE = "null-curve"
SHUFFLES = 1000
CHECKPOINT = Path("work", CENTRAL, "latest.safetensors")


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


@dataclass(frozen=True, eq=False)
class TrainedTarget:
    """A model under attack, and the shares of training and test images that it classifies correctly.

    What each attack made of it is kept.
    """

    case: Case
    mode: str
    train: Estimate
    test: Estimate
    _examined: dict[str, Examination] = field(default_factory=dict)

    @property
    def train_accuracy(self) -> float:
        return self.train.value or 0.0

    def examine(self, spec: str) -> Examination:
        """What one attack by the outsider makes of it."""
        if spec not in self._examined:
            self._examined[spec] = examine(self.case, spec, QueryAccess, detailed=False)
        return self._examined[spec]


class Targets:
    """Trains targets, and keeps the last one in memory for the next cell that asks for it."""

    def __init__(self) -> None:
        self._latest: Latest[TrainedTarget] = Latest()

    def trained(self, setting: Setting, place: Workplace) -> TrainedTarget:
        """The target of a setting, trained to the end."""
        return self._latest.get((setting, place.seed, place.shared), lambda: _trained(setting, place))

    def matched(self, setting: Setting, place: Workplace) -> TrainedTarget:
        """The central target, stopped when its train accuracy is closest to that of the federated one."""
        wanted = self.trained(setting, place).train_accuracy
        targets = []
        for target in _stopped(setting, place):
            targets.append(target)
            if target.train_accuracy >= wanted:
                break
        return min(targets, key=lambda target: abs(target.train_accuracy - wanted))


def mode_of(clients: int) -> str:
    """The line of the paper's tables; one client means training in one place."""
    return CENTRAL if clients == 1 else f"{clients}-clients"


def _trained(setting: Setting, place: Workplace) -> TrainedTarget:
    experiment = prepare(setting.model_copy(update={"seed": place.seed}))
    return _train(experiment, "whole", _shadowing(experiment, place), place)


def _stopped(setting: Setting, place: Workplace) -> Iterator[TrainedTarget]:
    """The central target after each round."""
    data = setting.data.model_copy(update={"clients": 1})
    whole = prepare(setting.model_copy(update={"seed": place.seed, "data": data}))
    shadowing = _shadowing(whole, place)
    for rounds in range(1, setting.training.rounds + 1):
        training = setting.training.model_copy(update={"rounds": rounds})
        shorter = whole.setting.model_copy(update={"training": training})
        yield _train(dataclasses.replace(whole, setting=shorter), f"after-{rounds:03d}", shadowing, place)


def _shadowing(experiment: Experiment, place: Workplace) -> Shadowing:
    return Shadowing(experiment, place.shared / "shadows", place.engine, place.progress)


def _train(experiment: Experiment, part: str, shadowing: Shadowing, place: Workplace) -> TrainedTarget:
    """The target of an experiment, continued from the round before where a folder beside it keeps that."""
    setting, mode = experiment.setting, mode_of(len(experiment.split.clients))
    parts = place.shared / f"{setting.data.name}-{setting.model.name}-{mode}-seed-{place.seed}"
    folder = RunFolder(parts / part, experiment.config(), experiment.origin)
    before = parts / f"after-{setting.training.rounds - 1:03d}" / CHECKPOINT
    if part != "whole" and before.exists() and not (folder.path / CHECKPOINT).exists():
        write_bytes(folder.path / CHECKPOINT, before.read_bytes())
    variant = Variant(CENTRAL if mode == CENTRAL else "fedavg", "none")
    case = train_target(experiment, folder, place.engine, place.progress, variant).case
    assert case.model is not None
    held = experiment.truth.held_by(range(len(experiment.split.clients)))
    train, test = (
        proportion(int(hits(case.model, images).sum()), len(images))
        for images in (held, experiment.split.images("test"))
    )
    return TrainedTarget(dataclasses.replace(case, shadows=shadowing.under("none")), mode, train, test)


def sample_column(target: TrainedTarget) -> list[Finding]:
    """The sample-wise attack, its rivals on single records, and how well the target fits its data."""
    findings = _fitting(target) + _attacked(target, "sample", (SAMPLE, *SINGLE_RIVALS))
    examination = target.examine(SAMPLE)
    if examination.reason is None:
        rng = numpy_rng(target.case.subject.seed or 0, "permutation null")
        evidence, member = _membership(examination)
        null = permutation_null(auc, evidence.scores, member, rng, SHUFFLES)
        p_value = Estimate(null.p_value, None, None, null.draws)
        findings.append(examination.finding(Score("permutation-p", p_value)))
    return findings


def batch_column(target: TrainedTarget, batch: int) -> list[Finding]:
    """Both batch-wise protocols, the rivals on the same batches, and the null curve."""
    rivals = [f"{name}(batch_size={batch})" for name in SET_RIVALS]
    findings = _attacked(target, str(batch), (batch_sample(batch), batch_batch(batch), *rivals))
    single, wise, mean_loss = map(target.examine, ("loss-threshold", batch_batch(batch), rivals[0]))
    if single.reason is None:
        # What plain averaging over batches gives Gaussian scores as separable as single losses are.
        losses, member = _membership(single)
        null = null_curve(auc(losses.scores, member), batch)
        outsider, subject = QueryAccess.adversary, target.case.subject
        findings.append(
            subject.finding("batch-membership", "null-auc", null, adversary=outsider, attack=NULL_CURVE)
        )
    if wise.reason is None and mean_loss.reason is None:
        (evidence, member), (rival, _) = _membership(wise), _membership(mean_loss)
        gain = auc_difference(evidence.scores, rival.scores, member)
        findings.append(wise.finding(Score("auc-over-set-loss", gain, 0.0)))
    return findings


def matched_column(target: TrainedTarget) -> list[Finding]:
    """The same attacks on a central model that fits its data as well as the federated one does."""
    specs = (SAMPLE, "loss-threshold", "lira", batch_sample(USUAL), batch_batch(USUAL))
    return _fitting(target) + _attacked(target, None, specs)


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
    estimate = accuracy_at_mix(evidence.decisions, member, ratio)
    return Score(f"accuracy-at-{ratio}:1", estimate, majority_rate(ratio))


def _fitting(target: TrainedTarget) -> list[Finding]:
    gap = combined((target.train, target.test), (1.0, -1.0))
    fits = {"train-accuracy": target.train, "test-accuracy": target.test, "train-test-gap": gap}
    return [target.case.subject.finding("utility", metric, fit) for metric, fit in fits.items()]


def _membership(examination: Examination) -> tuple[MembershipScores, np.ndarray]:
    """The answers about records or batches, and which of these were trained on."""
    assert isinstance(examination.evidence, MembershipScores)
    assert examination.question is not None
    return examination.evidence, examination.question.member
