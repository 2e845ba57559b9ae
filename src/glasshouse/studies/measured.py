"""What the finished cells of a study hold, by cell, attack and metric."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, combined
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.seeds import UNBOUNDED, across_seeds

Key = tuple[str, str | None, str]


class Measured:
    """Looks findings up: over all seeds together, or seed by seed.

    `same_records` where every seed is measured on the same records, which then do not average out.
    """

    same_records: ClassVar[bool] = False

    def __init__(self, findings: Iterable[Finding]) -> None:
        rows = list(findings)
        self.cells = list(dict.fromkeys(row.cell for row in rows))
        self.seeds = sorted({row.seed for row in rows if row.seed is not None})
        self._pooled: dict[Key, Measure] = {(m.row.cell, m.row.attack, m.row.metric): m for m in pooled(rows)}
        self._by_seed: dict[Key, dict[int, Estimate]] = {}
        for row in rows:
            if row.value is not None and row.seed is not None:
                estimate = Estimate(row.value, row.low, row.high, row.n or 0)
                self._by_seed.setdefault((row.cell, row.attack, row.metric), {})[row.seed] = estimate

    def measure(self, cell: str, attack: str | None, metric: str) -> Measure | None:
        """The finding over its seeds, or none."""
        return self._pooled.get((cell, attack, metric))

    def estimate(self, cell: str, attack: str | None, metric: str) -> Estimate | None:
        """Its value and interval, which is over the seeds where there are several."""
        return self.over_seeds(cell, attack, metric, UNBOUNDED)

    def over_seeds(
        self, cell: str, attack: str | None, metric: str, bounds: tuple[float, float]
    ) -> Estimate | None:
        """The same, its interval cut to `bounds`."""
        seeds = list(self.seeds_of(cell, attack, metric).values())
        return across_seeds(seeds, bounds=bounds, same_records=self.same_records) if seeds else None

    def value(self, cell: str, attack: str | None, metric: str) -> float | None:
        """Its value alone."""
        measure = self.measure(cell, attack, metric)
        return None if measure is None else measure.value

    def by_seed(self, cell: str, attack: str | None, metric: str) -> dict[int, float]:
        """The value at each seed."""
        seeds = self.seeds_of(cell, attack, metric)
        return {seed: estimate.value for seed, estimate in seeds.items() if estimate.value is not None}

    def seeds_of(self, cell: str, attack: str | None, metric: str) -> dict[int, Estimate]:
        """The value at each seed, with its interval over records where it has one."""
        return self._by_seed.get((cell, attack, metric), {})

    def attacks(self, cell: str, metric: str) -> list[str]:
        """The attacks whose `metric` was measured in a cell, in order."""
        return [key[1] for key in self._pooled if key[1] and (key[0], key[2]) == (cell, metric)]

    def metrics(self, cell: str, attack: str | None) -> list[str]:
        """What was measured of an attack in a cell, in order."""
        return [key[2] for key in self._pooled if key[:2] == (cell, attack)]


def apart(mine: Mapping[int, Estimate], others: Mapping[int, Estimate]) -> list[Estimate]:
    """By how much some estimates are above others, at each seed that both have, as if independent."""
    return [_weighed([mine[seed], others[seed]], [1.0, -1.0]) for seed in mine if seed in others]


def sloped(points: Mapping[float, Mapping[int, Estimate]]) -> list[Estimate]:
    """The least-squares slope over x, from the estimates at each x, for each seed that has all of them."""
    x = np.array(list(points))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    whole = set.intersection(*(set(seeds) for seeds in points.values()))
    return [_weighed([seeds[seed] for seeds in points.values()], list(weights)) for seed in sorted(whole)]


def _weighed(parts: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """The weighted sum; its n is that of the part with most records, which the parts often share."""
    return replace(combined(parts, weights), n=max(one.n for one in parts))


def less(estimates: Iterable[Estimate], number: float) -> list[Estimate]:
    """The estimates minus a number that is known exactly, such as a printed one."""
    exact = Estimate(number, number, number, 0)
    return [combined([estimate, exact], [1.0, -1.0]) for estimate in estimates]


def collapsed(findings: Iterable[Finding]) -> list[tuple[str, int]]:
    """Cell and seed of each model no better than its most frequent class, or whose training diverged.

    What is measured of a model that learned nothing says nothing about how it was trained.
    """
    return sorted({(row.cell, row.seed or 0) for row in findings if _collapsed(row)})


def _collapsed(row: Finding) -> bool:
    if row.metric != "test-accuracy":
        return False
    return row.value is None or (row.low is not None and row.chance is not None and row.low <= row.chance)
