"""What a study is: a grid of cells, each cached when done, and a verdict on what they say together."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from glasshouse.access import Access
from glasshouse.exhibits import Chart, Exhibits, Picture, StudyTable
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.verdicts.claims import Verdict

SCALES = ("smoke", "laptop", "paper")


@dataclass(frozen=True, eq=False)
class Workplace:
    """What a cell may use: the engine, its seed, and folders of its own and for all cells together.

    A user's `attack` runs beside the study's, in cells that take one.
    """

    engine: Engine
    seed: int
    folder: Path
    shared: Path
    progress: Progress
    attack: str = ""


T = TypeVar("T")


class Latest(Generic[T]):
    """The last value that was made, for the next cell that asks for the same."""

    def __init__(self) -> None:
        self._kept: tuple[object, T] | None = None

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The value of `key`, made now unless it was the last."""
        if self._kept is None or self._kept[0] != key:
            self._kept = None  # before the next is made: data sets are large
            self._kept = (key, make())
        return self._kept[1]


@dataclass(frozen=True)
class CellResult:
    """What a cell measured, and the curves, histograms, pictures and scores that belong to it.

    `seconds` is the wall time that it took, which whoever runs it fills in.
    """

    findings: Sequence[Finding]
    exhibits: Exhibits = field(default_factory=Exhibits)
    seconds: float | None = None


@dataclass(frozen=True)
class Cell:
    """One entry of the grid, named like a path: `table-4/cnn/cifar10/64`.

    What it returns is stamped with the study, the cell and the seed by whoever runs it; a cell without
    exhibits may return its findings alone. A `single` cell keeps one core busy and asks the engine for no
    more: many of them run at once. One that has `seeds` runs with so many, in place of the study's, unless
    the user says how many. For those that are `printed` the paper has a number.
    """

    name: str
    run: Callable[[Workplace], CellResult | list[Finding]]
    single: bool = False
    seeds: int | None = None
    printed: bool = False


@dataclass(frozen=True)
class Presentation:
    """What the page of a study shows beside its long table; pictures lie in the run's folder."""

    tables: tuple[StudyTable, ...] = ()
    charts: tuple[Chart, ...] = ()
    gallery: tuple[Picture, ...] = ()


class Study(ABC):
    """One paper, or one question: its cells at each scale, and its conclusions.

    A study whose question fits takes one more attack, of the family `takes` and of the adversary `by`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    takes: ClassVar[str] = ""
    by: ClassVar[type[Access] | None] = None

    def check_attack(self, spec: str) -> None:
        """Refuse an attack of the right family that cannot be asked the study's question."""
        return

    @abstractmethod
    def cells(self, scale: str) -> list[Cell]:
        """The grid at `scale`."""

    def seeds(self, scale: str) -> int:
        """How many seeds each cell runs with unless the user says otherwise."""
        return {"smoke": 1, "laptop": 3, "paper": 5}[scale]

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        """The tables and figures of the paper, filled with what was measured."""
        return Presentation()

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        """A verdict on each claim, from the findings that are there."""
        return []
