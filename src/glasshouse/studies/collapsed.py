"""Models that learned nothing: what is measured of them says nothing about how they were trained."""

from collections.abc import Iterable

from glasshouse.findings import Finding


def collapsed(findings: Iterable[Finding]) -> list[tuple[str, int]]:
    """Cell and seed of each model no better than its most frequent class, or whose training diverged."""
    return sorted({(row.cell, row.seed or 0) for row in findings if _collapsed(row)})


def _collapsed(row: Finding) -> bool:
    if row.metric != "test-accuracy":
        return False
    return row.value is None or (row.low is not None and row.chance is not None and row.low <= row.chance)
