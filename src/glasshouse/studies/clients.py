"""A small study of its own: the same data in more and more hands."""

from collections.abc import Sequence
from functools import partial

from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import AttackTable, DataTable, ModelTable, Setting, TrainingTable
from glasshouse.findings import Finding
from glasshouse.measures.estimate import mean
from glasshouse.store import RunFolder
from glasshouse.studies.study import Cell, Study, Workplace
from glasshouse.verdicts.claims import Verdict

FEWEST, MOST = 1, 10
ATTACKS = AttackTable(attacks=("loss-threshold", "gap"), defences=(), central=False, curvature=0)
SETTINGS = {
    "smoke": Setting(
        data=DataTable(name="digits", members=400, nonmembers=700, auxiliary=297, test=400),
        model=ModelTable(name="mlp"),
        training=TrainingTable(rounds=20, epochs=2, batch_size=10, lr=0.1, local_test=0),
        audit=ATTACKS,
    ),
    "laptop": Setting(
        data=DataTable(name="fashion-mnist", members=2000, nonmembers=2000, auxiliary=1000),
        training=TrainingTable(rounds=20, epochs=2, batch_size=10, lr=0.05, local_test=0),
        audit=ATTACKS,
    ),
    "paper": Setting(
        data=DataTable(name="fashion-mnist", members=20000, nonmembers=20000, auxiliary=20000),
        training=TrainingTable(rounds=50, epochs=2, batch_size=32, lr=0.05, local_test=0),
        audit=ATTACKS,
    ),
}


class ClientsStudy(Study):
    """Does training in more hands, for as many epochs, cost accuracy or hide members?"""

    name = "clients"
    title = "The same data in more and more hands"

    def cells(self, scale: str) -> list[Cell]:
        return [
            Cell(f"clients-{count}", partial(_audit, SETTINGS[scale], count))
            for count in (FEWEST, 2, 5, MOST)
        ]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        accuracy = _change(findings, "test-accuracy", None)
        auc = _change(findings, "auc", "loss-threshold")
        return [
            _verdict(f"{MOST} clients reach a lower test accuracy than {FEWEST}", accuracy),
            _verdict(f"{MOST} clients hide members better than {FEWEST} from the loss threshold", auc),
        ]


def _audit(setting: Setting, clients: int, place: Workplace) -> list[Finding]:
    data = setting.data.model_copy(update={"clients": clients})
    experiment = prepare(setting.model_copy(update={"data": data, "seed": place.seed}))
    findings, _ = run_battery(
        experiment, RunFolder(place.folder, experiment.config()), place.engine, place.progress
    )
    return findings


def _change(findings: Sequence[Finding], metric: str, attack: str | None) -> list[float]:
    """How much the metric falls from the fewest to the most clients, for each seed that has both."""
    values = {
        (finding.cell, finding.seed): finding.value
        for finding in findings
        if (finding.metric, finding.attack) == (metric, attack) and finding.value is not None
    }
    pairs = [
        (values.get((f"clients-{FEWEST}", seed)), values.get((f"clients-{MOST}", seed)))
        for seed in sorted({seed for _, seed in values if seed is not None})
    ]
    return [few - many for few, many in pairs if few is not None and many is not None]


def _verdict(claim: str, falls: list[float]) -> Verdict:
    if len(falls) < 2:
        return Verdict(claim, "open", f"{len(falls)} seeds have both ends; run at least 2 with --seeds")
    fall = mean(falls)
    low, high = fall.low or 0.0, fall.high or 0.0
    holds = "holds" if low > 0 else "refuted" if high < 0 else "not shown"
    reason = f"it falls by {fall.value:.3f}, 95% interval {low:.3f} to {high:.3f}, {fall.n} seeds"
    return Verdict(claim, holds, reason)
