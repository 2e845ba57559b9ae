"""Where the cells of the study lie in its grid, and finding those that are done."""

from dataclasses import dataclass
from typing import ClassVar

from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured


@dataclass(frozen=True)
class Table3Cell(Address):
    """Scale-MIA or a rival against a network at one batch size."""

    pattern: ClassVar[str] = "table-3/{network}/{attack}/{batch}"
    network: str
    attack: str
    batch: int


@dataclass(frozen=True)
class Table4Cell(Address):
    """One network, data set and batch size."""

    pattern: ClassVar[str] = "table-4/{network}/{data}/{batch}"
    network: str
    data: str
    batch: int


@dataclass(frozen=True)
class HeadsCell(Address):
    """The published head and ours at one batch size, from a sum of entries of so many `bits`."""

    pattern: ClassVar[str] = "heads/{bits}/{batch}"
    bits: int
    batch: int


@dataclass(frozen=True)
class StarvedCell(Address):
    """An attacker with less data: a share of the images (`table` 5, and 6), or some classes (7, and 8)."""

    pattern: ClassVar[str] = "table-{table}/{network}/{amount:g}/{batch}"
    table: int
    network: str
    amount: float
    batch: int


@dataclass(frozen=True)
class AutoencoderCell(Address):
    """The autoencoder of one network and data set, and of what the attacker has of it."""

    pattern: ClassVar[str] = "autoencoder/{network}/{data}/{granted}"
    network: str
    data: str
    granted: str


@dataclass(frozen=True)
class Figure6Cell(Address):
    """The latents of one network and data set."""

    pattern: ClassVar[str] = "figure-6/{network}/{data}"
    network: str
    data: str


@dataclass(frozen=True)
class VariedCell(Address):
    """What the paper leaves open: one value of what a question varies."""

    pattern: ClassVar[str] = "{question}/{value}"
    question: str
    value: str


def table_4(measured: Measured) -> dict[tuple[str, str], dict[int, str]]:
    """For each network and data set of Table 4 that is begun its finished cells, by rising batch size."""
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for cell in Table4Cell.matching(measured.cells):
        rows.setdefault((cell.network, cell.data), {})[cell.batch] = str(cell)
    return {row: dict(sorted(by_batch.items())) for row, by_batch in rows.items()}


def varied(measured: Measured, question: str) -> dict[str, str]:
    """The finished cells of a question, by what it varies."""
    cells = VariedCell.matching(measured.cells)
    return {cell.value: str(cell) for cell in cells if cell.question == question}
