"""A small study: the same data in more and more hands."""

from collections.abc import Sequence
from functools import partial

from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import AttackTable, DataTable, ModelTable, Setting, TrainingTable
from glasshouse.findings import Finding
from glasshouse.runfolder import RunFolder
from glasshouse.studies.measured import Measured, differences
from glasshouse.studies.study import Cell, Study, Workplace
from glasshouse.verdicts.claims import Unit, Verdict, judge

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
        counts = (FEWEST, 2, 5, MOST)
        return [Cell(_name(count), partial(_audit, SETTINGS[scale], count)) for count in counts]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        hidden = f"{MOST} clients hide members better than {FEWEST} from the loss threshold"
        claims = (
            (f"{MOST} clients reach a lower test accuracy than {FEWEST}", "test-accuracy", None),
            (hidden, "auc", "loss-threshold"),
        )
        return [
            judge(claim, _falls(findings, metric, attack), f"fall of {metric}")
            for claim, metric, attack in claims
        ]


def _name(clients: int) -> str:
    return f"clients-{clients}"


def _audit(setting: Setting, clients: int, place: Workplace) -> list[Finding]:
    data = setting.data.model_copy(update={"clients": clients})
    experiment = prepare(setting.model_copy(update={"data": data, "seed": place.seed}))
    folder = RunFolder(place.folder, experiment.config(), experiment.origin)
    findings, _ = run_battery(experiment, folder, place.engine, place.progress)
    return findings


def _falls(findings: Sequence[Finding], metric: str, attack: str | None) -> dict[Unit, float]:
    """How much the metric falls from the fewest to the most clients, for each seed that has both."""
    measured = Measured(findings)
    few, many = (measured.by_seed(_name(clients), attack, metric) for clients in (FEWEST, MOST))
    falls = differences(few, many)
    return {
        (row.data or "", row.model or "", row.seed): falls[row.seed] for row in findings if row.seed in falls
    }
