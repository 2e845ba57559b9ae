"""A small study: the same data in more and more hands."""

from collections.abc import Sequence
from functools import partial
from math import inf

from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import AttackTable, DataTable, ModelTable, Setting, TrainingTable
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.runfolder import RunFolder
from glasshouse.studies.measured import Measured, apart, collapsed
from glasshouse.studies.study import Cell, CellResult, Study, Workplace
from glasshouse.verdicts.claims import Claim, Part, Verdict, settle

FEWEST, MOST = 1, 10
NEGLIGIBLE = 0.01
"""A fall of accuracy or AUC by less counts as none."""
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
        hidden = f"B. {MOST} clients hide members better than {FEWEST} from the loss threshold"
        questions = (
            (f"A. {MOST} clients reach a lower test accuracy than {FEWEST}", "test-accuracy", None),
            (hidden, "auc", "loss-threshold"),
        )
        return settle(
            [Claim(text, _falls(findings, metric, attack), own=True) for text, metric, attack in questions]
        )


def _name(clients: int) -> str:
    return f"clients-{clients}"


def _audit(setting: Setting, clients: int, place: Workplace) -> CellResult:
    data = setting.data.model_copy(update={"clients": clients})
    experiment = prepare(setting.model_copy(update={"data": data, "seed": place.seed}))
    folder = RunFolder(place.folder, experiment.config(), experiment.origin)
    findings, exhibits = run_battery(experiment, folder, place.engine, place.progress)
    return CellResult(findings, Exhibits(records=exhibits.records))


def _falls(findings: Sequence[Finding], metric: str, attack: str | None) -> list[Part]:
    """How much the metric falls from the fewest to the most clients, where there is something to lose."""
    measured, cells = Measured(findings), [_name(clients) for clients in (FEWEST, MOST)]
    few, many = (measured.seeds_of(cell, attack, metric) for cell in cells)
    before = measured.measure(cells[0], attack, metric)
    if before is None or not many:
        return []
    lost = [cell for cell, _ in collapsed(findings) if cell in cells]
    barred = "a model learned nothing" if lost else ""
    if attack is not None and not barred and before.judged != "leak":
        barred = f"with {FEWEST} client the attack shows nothing that more could hide"
    row = before.row
    return [
        Part(
            f"{row.data}, {row.model}",
            f"fall of {metric}",
            apart(few, many),
            cells,
            refuted=(-inf, NEGLIGIBLE),
            barred=barred,
        )
    ]
