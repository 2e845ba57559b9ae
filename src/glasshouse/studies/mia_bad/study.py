"""The study: its grid at each scale."""

import dataclasses
from collections.abc import Sequence
from functools import partial

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.mia_bad.cells import batch_column, matched_column, sample_column
from glasshouse.studies.mia_bad.claims import USUAL, verdicts
from glasshouse.studies.mia_bad.layout import present
from glasshouse.studies.mia_bad.measured import Measured
from glasshouse.studies.mia_bad.printed import BATCHES
from glasshouse.studies.mia_bad.targets import Courts, Sizes, Target
from glasshouse.studies.study import Cell, Presentation, Study, Workplace
from glasshouse.verdicts.claims import Verdict

CLIENTS = (1, 2, 5, 10)
SMOKE = Sizes(members=400, nonmembers=500, auxiliary=700, test=197, shadows=4, rounds=5, epochs=4)
SMALL = Sizes(members=4000, nonmembers=8000, auxiliary=8000, test=2000, shadows=10, rounds=10, epochs=2)
DEEP = Sizes(members=1000, nonmembers=4000, auxiliary=2000, test=2000, shadows=5, rounds=10, epochs=2)
PAPER = Sizes(members=20000, nonmembers=10000, auxiliary=20000, test=10000, shadows=10, rounds=20, epochs=5)


@dataclasses.dataclass(frozen=True)
class Row:
    """One data set and network: the table it belongs to, and the batch sizes measured on it."""

    table: str
    data: str
    model: str
    sizes: Sizes
    batches: tuple[int, ...] = (USUAL,)


ROWS = {
    "smoke": (Row("table-1", "digits", "mlp", SMOKE, (8, 16, 32)),),
    "laptop": (
        Row("table-1", "cifar10", "lenet", SMALL, BATCHES),
        *(Row("table-2", data, "lenet", SMALL) for data in ("mnist", "fashion-mnist", "cifar100")),
        Row("table-1", "cifar10", "efficientnet-b0", DEEP),
    ),
    "paper": (
        Row("table-1", "cifar10", "efficientnet-b0", PAPER, BATCHES),
        *(Row("table-2", data, "efficientnet-b0", PAPER) for data in ("mnist", "fashion-mnist", "cifar100")),
    ),
}


class MIABadStudy(Study):
    """Is membership inference better when it learns from batches, and does federation mitigate it?"""

    name = "mia-bad"
    title = "MIA-BAD: membership inference from batches, and its mitigation by federation"

    def __init__(self) -> None:
        self._courts = Courts()

    def cells(self, scale: str) -> list[Cell]:
        made = []
        for row in ROWS[scale]:
            for clients in CLIENTS:
                target = Target(row.data, row.model, clients, row.sizes)
                head = f"{row.table}/{row.data}/{row.model}/{target.mode}"
                made.append(Cell(f"{head}/sample", partial(self._sample, target)))
                made += [
                    Cell(f"{head}/{batch}", partial(self._batch, target, batch)) for batch in row.batches
                ]
                if clients > 1:
                    name = f"matched/{row.data}/{row.model}/{target.mode}"
                    made.append(Cell(name, partial(self._matched, target)))
        return made

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        return present(Measured(findings))

    def _sample(self, target: Target, place: Workplace) -> list[Finding]:
        return sample_column(self._courts.of(target, place), target)

    def _batch(self, target: Target, batch: int, place: Workplace) -> list[Finding]:
        return batch_column(self._courts.of(target, place), target, batch)

    def _matched(self, target: Target, place: Workplace) -> list[Finding]:
        return matched_column(self._courts.matched(target, place), target, USUAL)
