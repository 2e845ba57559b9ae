"""What the finished cells hold, as lines: a number at each batch size, seed by seed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.measures.trends import rank_correlation, slope
from glasshouse.studies import measured
from glasshouse.studies.batch_robustness.cells import EPS, attack_name

COLOUR = "cifar"
"""How the names of data sets in colour begin."""
SPENT = 0.05
"""Accuracy below which an attack has left nothing to compare."""


@dataclass(frozen=True)
class Quantity:
    """A number of a model: how the tables call it, where it lies in the findings, and its scale.

    `attack` and `limit` (0 for the smaller eps, 1 for the paper's) where it is an accuracy under attack. What
    is `logarithmic` is compared in doublings. A `margin` is the change that counts as none.
    """

    name: str
    metric: str
    attack: str | None = None
    limit: int = 1
    logarithmic: bool = False
    margin: float = 0.01

    def spec(self, data: str) -> str | None:
        """The attack as the findings of a data set call it."""
        return attack_name(self.attack, self.eps(data)) if self.attack else None

    def eps(self, data: str) -> float:
        """The limit of the attack."""
        return EPS[3 if data.startswith(COLOUR) else 1][self.limit]


CLEAN = Quantity("test accuracy", "test-accuracy")
FGSM, PGD = (Quantity(f"{name} accuracy", "robust-accuracy", name.lower()) for name in ("FGSM", "PGD"))
WEAK_FGSM, WEAK_PGD = (
    Quantity(f"{name} accuracy, smaller eps", "robust-accuracy", name.lower(), 0) for name in ("FGSM", "PGD")
)
TOP = Quantity("top eigenvalue", "top-eigenvalue", logarithmic=True, margin=0.1)
INPUT = Quantity("top eigenvalue in pixels", "input-eigenvalue", logarithmic=True, margin=0.1)
ACCURACIES = (CLEAN, FGSM, PGD, WEAK_FGSM, WEAK_PGD)
QUANTITIES = (*ACCURACIES, TOP, INPUT)


@dataclass(frozen=True)
class Line:
    """A line of the figures: kind, data, network and setting."""

    kind: str
    data: str
    model: str
    setting: str

    @property
    def head(self) -> str:
        """The beginning of the names of its cells."""
        return f"{self.kind}/{self.data}/{self.model}/{self.setting}"


class Measured(measured.Measured):
    """Looks findings up by line, batch size and seed.

    Models that have learned nothing are left out and named in `collapsed`: one that always says the same
    class keeps that share of right answers under any attack, and would pass for robust.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        rows = list(findings)
        everyone = {(row.cell, row.seed) for row in rows}
        self.collapsed = sorted({(row.cell, row.seed or 0) for row in rows if _collapsed(row)})
        self.models = len(everyone)
        super().__init__(row for row in rows if (row.cell, row.seed or 0) not in set(self.collapsed))

    def lines(self, *kinds: str) -> list[Line]:
        """The lines that have finished cells, in order."""
        heads = [cell.split("/")[:4] for cell in self.cells if cell.split("/")[0] in kinds]
        return [Line(*head) for head in dict.fromkeys(map(tuple, heads))]

    def rows(self, *kinds: str) -> list[tuple[str, str]]:
        """Data and network of the finished lines."""
        return list(dict.fromkeys((line.data, line.model) for line in self.lines(*kinds)))

    def batches(self, line: Line) -> list[int]:
        """The finished batch sizes of a line, rising."""
        return sorted(int(batch) for batch in self.under(line.head))

    def at(self, line: Line, batch: int | str, quantity: Quantity) -> dict[int, float]:
        """The quantity at each seed, in doublings where it is logarithmic."""
        found = self.by_seed(f"{line.head}/{batch}", quantity.spec(line.data), quantity.metric)
        if not quantity.logarithmic:
            return found
        return {seed: math.log2(value) for seed, value in found.items() if value > 0}

    def over_seeds(self, line: Line, batch: int | str, quantity: Quantity) -> Estimate | None:
        """The quantity over its seeds, on its own scale; one seed has the interval of its images."""
        found = self.estimate(f"{line.head}/{batch}", quantity.spec(line.data), quantity.metric)
        if found is None or found.value is None or quantity.logarithmic:
            return found
        values = list(self.at(line, batch, quantity).values())
        return mean(values, bounds=(0.0, 1.0)) if len(values) > 1 else found

    def spent(self, line: Line, quantity: Quantity) -> bool:
        """Whether an attack leaves so little at every batch size that nothing can be compared."""
        found = [self.over_seeds(line, batch, quantity) for batch in self.batches(line)]
        left = [own.value for own in found if own is not None and own.value is not None]
        return quantity.attack is not None and all(value < SPENT for value in left)

    def slopes(self, line: Line, quantity: Quantity) -> dict[int, float]:
        """The change with each doubling of the batch size, for each seed with at least 3 sizes."""
        points = self._points(line, quantity)
        made: dict[int, float] = {}
        for seed in sorted({seed for seed, _, _ in points}):
            own = [(x, y) for number, x, y in points if number == seed]
            found = slope([x for x, _ in own], [y for _, y in own]) if len(own) >= 3 else None
            made |= {seed: found} if found is not None else {}
        return made

    def correlation(self, line: Line, quantity: Quantity, other: Quantity | None = None) -> Estimate:
        """The rank correlation with the batch size, or with another quantity, over all sizes and seeds."""
        if other is None:
            points = self._points(line, quantity)
            return rank_correlation([x for _, x, _ in points], [y for _, _, y in points])
        pairs = []
        for batch in self.batches(line):
            mine, yours = self.at(line, batch, quantity), self.at(line, batch, other)
            pairs += [(mine[seed], yours[seed]) for seed in mine if seed in yours]
        return rank_correlation([x for x, _ in pairs], [y for _, y in pairs])

    def _points(self, line: Line, quantity: Quantity) -> list[tuple[int, float, float]]:
        return [
            (seed, math.log2(batch), value)
            for batch in self.batches(line)
            for seed, value in self.at(line, batch, quantity).items()
        ]


def _collapsed(row: Finding) -> bool:
    """Whether a model is no better than always saying the most frequent class, or its training diverged."""
    if row.metric != "test-accuracy":
        return False
    return row.value is None or (row.low is not None and row.chance is not None and row.low <= row.chance)
