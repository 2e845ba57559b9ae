"""What is varied at each scale: data sets and networks, the number of clients, and the size of batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from glasshouse.auditing.setting import AttackTable, DataTable, ModelTable, Setting, TrainingTable
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad import cells
from glasshouse.studies.mia_bad.cells import TableCell, TrainedTarget
from glasshouse.studies.mia_bad.claims import verdicts
from glasshouse.studies.mia_bad.layout import present
from glasshouse.studies.mia_bad.printed import BATCHES
from glasshouse.studies.study import Cell, Presentation, Study, Workplace
from glasshouse.verdicts.claims import Verdict

Column = Callable[[TrainedTarget], list[Finding]]
Train = Callable[[Setting, Workplace], TrainedTarget]

CLIENTS = (1, 2, 5, 10)
OTHER_DATA = ("mnist", "fashion-mnist", "cifar100")


@dataclass(frozen=True)
class GridRow:
    """A row of the tables, a setting of the size of its targets, and the batch sizes measured on it."""

    row: TableCell
    sizes: Setting
    batches: tuple[int, ...] = (cells.USUAL,)

    def setting(self, clients: int) -> Setting:
        """The audit that a target is taken from."""
        data = self.sizes.data.model_copy(update={"name": self.row.data, "clients": clients})
        return self.sizes.model_copy(update={"data": data, "model": ModelTable(name=self.row.model)})


def _sizes(
    members: int, nonmembers: int, auxiliary: int, test: int, *, shadows: int, rounds: int, epochs: int
) -> Setting:
    """IID clients, Adam, and shadows trained in one place."""
    return Setting(
        data=DataTable(members=members, nonmembers=nonmembers, auxiliary=auxiliary, test=test),
        training=TrainingTable(rounds=rounds, epochs=epochs, optimiser="adam", lr=0.001, local_test=0),
        audit=AttackTable(attacks=(), defences=(), shadows=shadows, shadow_training="central", observe=1),
    )


SMOKE = _sizes(400, 500, 700, 197, shadows=4, rounds=5, epochs=4)
SMALL = _sizes(4000, 8000, 8000, 2000, shadows=10, rounds=10, epochs=2)
DEEP = _sizes(1000, 4000, 2000, 2000, shadows=5, rounds=10, epochs=2)
PAPER = _sizes(20000, 10000, 20000, 10000, shadows=10, rounds=20, epochs=5)
GRID = {
    "smoke": (GridRow(TableCell("table-1", "digits", "mlp"), SMOKE, (8, 16, 32)),),
    "laptop": (
        GridRow(TableCell("table-1", "cifar10", "lenet"), SMALL, BATCHES),
        *(GridRow(TableCell("table-2", data, "lenet"), SMALL) for data in OTHER_DATA),
        GridRow(TableCell("table-1", "cifar10", "efficientnet-b0"), DEEP),
    ),
    "paper": (
        GridRow(TableCell("table-1", "cifar10", "efficientnet-b0"), PAPER, BATCHES),
        *(GridRow(TableCell("table-2", data, "efficientnet-b0"), PAPER) for data in OTHER_DATA),
    ),
}


class MIABadStudy(Study):
    """Is membership inference better when it learns from batches, and does federation mitigate it?"""

    name = "mia-bad"
    title = "MIA-BAD: membership inference from batches, and its mitigation by federation"

    def __init__(self) -> None:
        self._targets = cells.Targets()

    def cells(self, scale: str) -> list[Cell]:
        return [
            cell for entry in GRID[scale] for clients in CLIENTS for cell in self._of_target(entry, clients)
        ]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        return present(Measured(findings))

    def _of_target(self, entry: GridRow, clients: int) -> Iterator[Cell]:
        """The cells that attack one target, and the central one that fits its data as well."""
        row, mode, setting = entry.row, cells.mode_of(clients), entry.setting(clients)

        def cell(name: str, column: Column, train: Train = self._targets.trained) -> Cell:
            return Cell(name, lambda place: column(train(setting, place)))

        yield cell(row.at(mode), cells.sample_column)
        for batch in entry.batches:
            yield cell(row.at(mode, batch), partial(cells.batch_column, batch=batch))
        if clients > 1:
            yield cell(row.matched(mode), cells.matched_column, self._targets.matched)
