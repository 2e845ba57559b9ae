"""What is varied at each scale: data sets and networks, the number of clients, and the size of batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from glasshouse.access import QueryAccess
from glasshouse.auditing.setting import AttackTable, DataTable, ModelTable, Setting, TrainingTable
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad import cells
from glasshouse.studies.mia_bad.cells import TableCell
from glasshouse.studies.mia_bad.claims import verdicts
from glasshouse.studies.mia_bad.layout import present
from glasshouse.studies.mia_bad.pretrained import FACTORY, PRETRAINED, RANDOM, weights_file
from glasshouse.studies.mia_bad.printed import BATCHES, printed
from glasshouse.studies.mia_bad.training import Targets, TrainedTarget, mode_of
from glasshouse.studies.study import Cell, CellResult, Presentation, Study, Workplace
from glasshouse.verdicts.claims import Verdict

Column = Callable[[TrainedTarget, str], list[Finding]]
Train = Callable[[Setting, Workplace], TrainedTarget]

CLIENTS = (1, 2, 5, 10)
DATA = ("cifar10", "mnist", "fashion-mnist", "cifar100")
"""Table I is about the first, Table II about the others."""


@dataclass(frozen=True)
class GridRow:
    """A row of the tables, a setting of the size of its targets, and the batch sizes measured on it."""

    row: TableCell
    sizes: Setting
    batches: tuple[int, ...] = (cells.USUAL,)

    def setting(self, clients: int) -> Setting:
        """The audit that a target is taken from."""
        data = self.sizes.data.model_copy(update={"name": self.row.data, "clients": clients})
        name = FACTORY if self.row.model == PRETRAINED else self.row.model
        return self.sizes.model_copy(update={"data": data, "model": ModelTable(name=name)})


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
SMALL = _sizes(4000, 8000, 8000, 2000, shadows=6, rounds=20, epochs=5)
DEEP = _sizes(1000, 4000, 2000, 2000, shadows=6, rounds=10, epochs=2)
COLOUR, GREY = (
    _sizes(members, 5000, 4000, 1000, shadows=10, rounds=20, epochs=5) for members in (50000, 60000)
)
PAPER = {"cifar10": COLOUR, "mnist": GREY, "fashion-mnist": GREY, "cifar100": COLOUR}
"""As many members as the paper has; what is left of a data set's images is for all the others."""


def rows(scale: str) -> list[GridRow]:
    """The rows of a scale; EfficientNet-B0 starts from ImageNet weights where there is a file of them."""
    if scale == "smoke":
        return [GridRow(TableCell("table-1", "digits", "mlp"), SMOKE, (8, 16, 32))]
    found = weights_file() is not None
    if scale == "paper":
        return list(_tables(PRETRAINED if found else RANDOM, PAPER))
    deep = [GridRow(TableCell("table-1", "cifar10", PRETRAINED), DEEP)] if found else []
    return [*_tables("lenet", dict.fromkeys(DATA, SMALL)), *deep]


def _tables(model: str, sizes: Mapping[str, Setting]) -> Iterator[GridRow]:
    """Table I with all batch sizes, then Table II."""
    first, *others = DATA
    yield GridRow(TableCell("table-1", first, model), sizes[first], BATCHES)
    for data in others:
        yield GridRow(TableCell("table-2", data, model), sizes[data])


class MIABadStudy(Study):
    """Is membership inference better when it learns from batches, and does federation mitigate it?"""

    name = "mia-bad"
    title = "MIA-BAD: membership inference from batches, and its mitigation by federation"
    takes = "membership"
    by = QueryAccess

    def __init__(self) -> None:
        self._targets = Targets()

    def cells(self, scale: str) -> list[Cell]:
        return [
            cell for entry in rows(scale) for clients in CLIENTS for cell in self._of_target(entry, clients)
        ]

    def seeds(self, scale: str) -> int:
        """Four at `laptop`: thresholds from shadow models move with the seed, and two say little of that."""
        return 4 if scale == "laptop" else super().seeds(scale)

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        return present(Measured(findings))

    def _of_target(self, entry: GridRow, clients: int) -> Iterator[Cell]:
        """The cells that attack one target, and the central one that fits its data as well."""
        row, mode, setting = entry.row, mode_of(clients), entry.setting(clients)

        def cell(name: str, column: Column, train: Train = self._targets.trained) -> Cell:
            return Cell(
                name, lambda place: _measured(column, train(setting, place), place), printed=_is_printed(name)
            )

        yield cell(row.at(mode), cells.sample_column)
        for batch in entry.batches:
            yield cell(row.at(mode, batch), partial(cells.batch_column, batch=batch))
        if clients > 1:
            yield cell(row.matched(mode), cells.matched_column, self._targets.matched)


def _is_printed(cell: str) -> bool:
    place = TableCell.parse(cell)
    return place is not None and printed(place.data, place.mode, place.column) is not None


def _measured(column: Column, target: TrainedTarget, place: Workplace) -> CellResult:
    return cells.with_scores(target, column(target, place.attack))
