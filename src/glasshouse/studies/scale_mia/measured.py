"""What the finished cells hold, by cell, attack and metric."""

from collections.abc import Iterable

from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.report.measure import Measure, pooled

Key = tuple[str, str | None, str]


class Measured:
    """Looks findings up: one number over all seeds."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        rows = list(findings)
        self.cells = list(dict.fromkeys(row.cell for row in rows))
        self.seeds = sorted({row.seed for row in rows if row.seed is not None})
        self._found: dict[Key, Measure] = {
            (own.row.cell, own.row.attack, own.row.metric): own for own in pooled(rows)
        }

    def measure(self, cell: str, attack: str | None, metric: str) -> Measure | None:
        """The finding over its seeds, or none."""
        return self._found.get((cell, attack, metric))

    def estimate(self, cell: str, attack: str | None, metric: str) -> Estimate | None:
        """Its value and interval, which is over the seeds where there are several."""
        found = self.measure(cell, attack, metric)
        if found is None or found.value is None:
            return None
        if len(found.values) > 1:
            return mean(found.values)
        return Estimate(found.value, found.low, found.high, found.n or 0)

    def value(self, cell: str, attack: str | None, metric: str) -> float | None:
        """Its value alone."""
        found = self.measure(cell, attack, metric)
        return None if found is None else found.value

    def under(self, head: str) -> list[str]:
        """What follows `head` in the names of the finished cells, in order."""
        inside = [cell.removeprefix(f"{head}/") for cell in self.cells if cell.startswith(f"{head}/")]
        return list(dict.fromkeys(inside))

    def rows(self) -> list[tuple[str, str]]:
        """Network and data of the finished rows of Table 4, in order."""
        named = [cell.split("/") for cell in self.under("table-4")]
        return list(dict.fromkeys((network, data) for network, data, _ in named))

    def batches(self, network: str, data: str) -> list[int]:
        """The finished batch sizes of a row of Table 4, rising."""
        return sorted(int(batch) for batch in self.under(f"table-4/{network}/{data}"))

    def attacks(self, cell: str) -> list[str]:
        """The attacks that were measured in a cell."""
        return [attack for own, attack, metric in self._found if own == cell and attack and metric == "psnr"]
