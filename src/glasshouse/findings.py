"""Findings: one flat row for each number, which is all that results, tables and the page are made of."""

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from glasshouse.errors import BadInput
from glasshouse.measures.estimate import Estimate


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measured number, what it would be by chance, and all one needs to know to judge it.

    `low` and `high` bound its 95% interval; `assumes` names what the attack was given beyond its access, and
    nothing else; `reason` says why there is no value, `note` what else a reader should know; `printed` is the
    paper's number, `seconds` the wall time.
    """

    source: str
    cell: str
    family: str
    adversary: str | None = None
    attack: str | None = None
    defence: str | None = None
    strategy: str | None = None
    data: str | None = None
    model: str | None = None
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    n: int | None = None
    seed: int | None = None
    assumes: tuple[str, ...] = ()
    reason: str | None = None
    note: str | None = None
    printed: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for key in ("value", "low", "high", "chance", "printed", "seconds"):
            number = getattr(self, key)
            assert number is None or math.isfinite(number), f"{self.cell}: {key} is {number}"
        assert self.value is not None or self.reason, f"{self.cell}: a missing value needs its reason"

    def row(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return dataclasses.asdict(self) | {"assumes": list(self.assumes)}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What findings are about: everything that all of one model, or one federation, have in common.

    A `note` is what a reader should know of each of them.
    """

    source: str = "audit"
    defence: str | None = "none"
    strategy: str | None = None
    data: str | None = None
    model: str | None = None
    seed: int | None = None
    note: str | None = None

    def finding(
        self,
        family: str,
        metric: str,
        estimate: Estimate,
        *,
        cell: str = "",
        adversary: str | None = None,
        attack: str | None = None,
        chance: float | None = None,
        assumes: tuple[str, ...] = (),
        note: str | None = None,
        printed: float | None = None,
        seconds: float | None = None,
    ) -> Finding:
        """The finding that this subject has `estimate`, whose own note is the reason of a missing value."""
        missing = estimate.value is None
        notes = [self.note, note, None if missing else estimate.note]
        return Finding(
            source=self.source,
            cell=cell,
            family=family,
            adversary=adversary,
            attack=attack,
            defence=self.defence,
            strategy=self.strategy,
            data=self.data,
            model=self.model,
            metric=metric,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            chance=chance,
            n=estimate.n,
            seed=self.seed,
            assumes=assumes,
            reason=estimate.note if missing else None,
            note="; ".join(filter(None, notes)) or None,
            printed=printed,
            seconds=seconds,
        )


def from_row(row: dict[str, Any]) -> Finding:
    """The inverse of `Finding.row`."""
    try:
        return Finding(**row | {"assumes": tuple(row["assumes"])})
    except (TypeError, KeyError) as error:
        raise BadInput(f"a row of kept results is damaged ({error}); delete the run's work folder") from error


def as_csv(findings: Iterable[Finding]) -> str:
    """The findings as a CSV table with a header; `assumes` joined by semicolons."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in dataclasses.fields(Finding)], lineterminator="\n")
    writer.writeheader()
    for finding in findings:
        writer.writerow(finding.row() | {"assumes": "; ".join(finding.assumes)})
    return text.getvalue()


def rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings as `results.json` holds them."""
    return [finding.row() for finding in findings]
