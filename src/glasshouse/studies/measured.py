"""What the finished cells of a study hold, by cell, attack and metric."""

from collections.abc import Iterable, Mapping

from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.pooling import pooled

Key = tuple[str, str | None, str]


class Measured:
    """Looks findings up: over all seeds together, or seed by seed."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        rows = list(findings)
        self.cells = list(dict.fromkeys(row.cell for row in rows))
        self.seeds = sorted({row.seed for row in rows if row.seed is not None})
        self._pooled: dict[Key, Measure] = {(m.row.cell, m.row.attack, m.row.metric): m for m in pooled(rows)}
        self._by_seed: dict[Key, dict[int, float]] = {}
        for row in rows:
            if row.value is not None and row.seed is not None:
                self._by_seed.setdefault((row.cell, row.attack, row.metric), {})[row.seed] = row.value

    def measure(self, cell: str, attack: str | None, metric: str) -> Measure | None:
        """The finding over its seeds, or none."""
        return self._pooled.get((cell, attack, metric))

    def estimate(self, cell: str, attack: str | None, metric: str) -> Estimate | None:
        """Its value and interval, which is over the seeds where there are several."""
        measure = self.measure(cell, attack, metric)
        if measure is None or measure.value is None:
            return None
        if len(measure.values) > 1:
            return mean(measure.values)
        return Estimate(measure.value, measure.low, measure.high, measure.n or 0)

    def over_seeds(
        self, cell: str, attack: str | None, metric: str, bounds: tuple[float, float]
    ) -> Estimate | None:
        """The same, its interval cut to `bounds`; one seed has the interval of what was counted in it."""
        values = list(self.by_seed(cell, attack, metric).values())
        return mean(values, bounds=bounds) if len(values) > 1 else self.estimate(cell, attack, metric)

    def value(self, cell: str, attack: str | None, metric: str) -> float | None:
        """Its value alone."""
        measure = self.measure(cell, attack, metric)
        return None if measure is None else measure.value

    def by_seed(self, cell: str, attack: str | None, metric: str) -> dict[int, float]:
        """The value at each seed."""
        return self._by_seed.get((cell, attack, metric), {})

    def attacks(self, cell: str, metric: str) -> list[str]:
        """The attacks whose `metric` was measured in a cell, in order."""
        return [key[1] for key in self._pooled if key[1] and (key[0], key[2]) == (cell, metric)]

    def metrics(self, cell: str, attack: str | None) -> list[str]:
        """What was measured of an attack in a cell, in order."""
        return [key[2] for key in self._pooled if key[:2] == (cell, attack)]


def differences(mine: Mapping[int, float], others: Mapping[int, float]) -> dict[int, float]:
    """By how much some values are above others, at each seed that both have."""
    return {seed: value - others[seed] for seed, value in mine.items() if seed in others}


def collapsed(findings: Iterable[Finding]) -> list[tuple[str, int]]:
    """Cell and seed of each model no better than its most frequent class, or whose training diverged.

    What is measured of a model that learned nothing says nothing about how it was trained.
    """
    return sorted({(row.cell, row.seed or 0) for row in findings if _collapsed(row)})


def _collapsed(row: Finding) -> bool:
    if row.metric != "test-accuracy":
        return False
    return row.value is None or (row.low is not None and row.chance is not None and row.low <= row.chance)
