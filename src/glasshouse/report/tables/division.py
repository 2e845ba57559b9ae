"""Who holds what of the data, as tables: client by client, and class by class."""

import itertools
from dataclasses import dataclass

from glasshouse.exhibits import Division, Holder
from glasshouse.report.tables.table import Cell, Table, columns, text_cell
from glasshouse.spelling import DASH
from glasshouse.verdicts.division import PARTS, class_name, clients_words, division_lines, held_out_words

FEW = 25
"""Rows of a table that stands open."""

MOST = 1000
"""Clients that the page lists; `curves.json` has all of them."""


@dataclass(frozen=True)
class DivisionSection:
    """What was made of the data: in sentences, then in numbers."""

    teaser: str
    lines: list[str]
    tables: list[Table]


def division_section(division: Division) -> DivisionSection:
    """Who holds what, client by client and class by class."""
    teaser = f"{clients_words(division)}; held out {held_out_words(division)}"
    return DivisionSection(teaser, division_lines(division), [_clients(division), _classes(division)])


def _clients(division: Division) -> Table:
    others = [part for part in PARTS if any(getattr(one, part) is not None for one in division.holders)]
    numbers = itertools.count()
    heads = (
        *columns("client"),
        *columns("number", "members", *(PARTS[part] for part in others), "classes", numeric=True),
        *columns("most frequent class"),
    )
    rows = tuple(
        _client(division, holder, next(numbers) if holder.members else None, others)
        for holder in division.holders[:MOST]
    )
    count = len(division.holders)
    note = "" if others else "The other parts were drawn from the images of all clients together."
    if count > MOST:
        note = f"The first {MOST:,} of {count:,}; curves.json has all of them. {note}".strip()
    return Table(
        "clients-table", "What each client holds", heads, rows, count > FEW, folded=count > FEW, note=note
    )


def _client(division: Division, holder: Holder, number: int | None, others: list[str]) -> tuple[Cell, ...]:
    """A client's row; by its `number` it is called where it takes part and no name fits."""
    numbers = [number, holder.members, *(getattr(holder, part) for part in others)]
    largest = Cell(DASH, "", ("",))
    if holder.members:
        named = f"{class_name(division, holder.largest)} ({holder.share * 100:.0f}%)"
        largest = Cell(named, f"{holder.share}", (named,))
    return (text_cell(holder.name), *map(text_cell, numbers), text_cell(holder.classes or None), largest)


def _classes(division: Division) -> Table:
    heads = (*columns("class"), *columns("members", *PARTS.values(), numeric=True))
    rows = tuple(
        (
            text_cell(class_name(division, label)),
            *(text_cell(division.labels[part][label]) for part in ("members", *PARTS)),
        )
        for label in range(len(division.labels["members"]))
    )
    return Table("classes-table", "Classes in each part", heads, rows, len(rows) > FEW, folded=True)
