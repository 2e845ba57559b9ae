"""Findings: one flat row for each number, which is all that results, tables and the page are made of."""

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from glasshouse.errors import BadInput
from glasshouse.measures.estimate import Estimate

FORMULA = re.compile(r"[=+\-@\t\r]")
"""How text begins that a spreadsheet would run; the page's own tables are written by the same rule."""

LADDER = "ladder"
"""The family of findings on updates that were made for the ladder of realism: nobody sent them."""

NUMBER = re.compile(r"\s*([+-]?(Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?))?\s*")


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
    """The findings as a CSV table with a header; `assumes` joined by semicolons.

    An apostrophe stands before text that a spreadsheet would take for a formula.
    """
    header = [field.name for field in dataclasses.fields(Finding)]
    lines = [header]
    for finding in findings:
        row = finding.row() | {"assumes": "; ".join(finding.assumes)}
        lines.append([csv_cell(row[name]) for name in header])
    return "".join(",".join(line) + "\n" for line in lines)


def csv_cell(value: str | float | None) -> str:
    """A cell of a CSV table.

    >>> csv_cell(-0.5), csv_cell("=1+1"), csv_cell("a, b"), csv_cell(None)
    ('-0.5', "'=1+1", '"a, b"', '')
    """
    text = "" if value is None else str(value)
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        text = f"'{text}"
    text = text.encode(errors="backslashreplace").decode()
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\r\n]', text) else text


def rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings as `results.json` holds them."""
    return [finding.row() for finding in findings]
