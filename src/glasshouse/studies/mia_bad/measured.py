"""What the finished cells hold, by cell, attack and metric."""

import dataclasses

from glasshouse.measures.estimate import mean
from glasshouse.studies import measured
from glasshouse.verdicts.measure import Measure

SIGNED = dict.fromkeys(("train-test-gap", "advantage", "auc-over-set-loss"), (-1.0, 1.0))


class Measured(measured.Measured):
    """Looks findings up: over all seeds together, or seed by seed."""

    def measure(self, cell: str, attack: str | None, metric: str) -> Measure | None:
        """The finding over its seeds: with several of them, their mean and its t interval."""
        found = super().measure(cell, attack, metric)
        if found is None or len(found.values) < 2:
            return found
        over = mean(found.values, bounds=SIGNED.get(metric, (0.0, 1.0)))
        return dataclasses.replace(found, low=over.low, high=over.high)

    def rows(self) -> list[tuple[str, str, str]]:
        """Table, data and model of the finished cells of Tables I and II, in order."""
        heads = [tuple(cell.split("/")[:3]) for cell in self.cells if not cell.startswith("matched")]
        return [(table, data, model) for table, data, model in dict.fromkeys(heads)]

    def columns(self, row: tuple[str, str, str]) -> list[str]:
        """The columns that are finished in a row: `sample` and batch sizes."""
        inside = [cell.split("/")[4] for cell in self.cells if cell.startswith("/".join(row) + "/")]
        return list(dict.fromkeys(inside))
