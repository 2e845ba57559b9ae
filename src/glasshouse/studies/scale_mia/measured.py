"""What the finished cells hold, by cell, attack and metric."""

from glasshouse.studies import measured


class Measured(measured.Measured):
    """Looks findings up: one number over all seeds."""

    def rows(self) -> list[tuple[str, str]]:
        """Network and data of the finished rows of Table 4, in order."""
        named = [cell.split("/") for cell in self.under("table-4")]
        return list(dict.fromkeys((network, data) for network, data, _ in named))

    def batches(self, network: str, data: str) -> list[int]:
        """The finished batch sizes of a row of Table 4, rising."""
        return sorted(int(batch) for batch in self.under(f"table-4/{network}/{data}"))

    def attacks(self, cell: str) -> list[str]:
        """The attacks that were measured in a cell."""
        return [attack for own, attack, metric in self._pooled if own == cell and attack and metric == "psnr"]
