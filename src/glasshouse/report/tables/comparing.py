"""The tables of a page that compares runs."""

from collections.abc import Sequence

from glasshouse.report.differing import Differing, Experiment
from glasshouse.report.tables.table import (
    Cell,
    Column,
    Table,
    columns,
    defence_cell,
    number_cell,
    ranged_column,
    spanned_cell,
    text_cell,
)
from glasshouse.showing import Differences, pairing_words, signed, verdict_words
from glasshouse.spelling import slug
from glasshouse.verdicts.differences import Difference
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import CENTRAL, metric_words

VARYING = ("strategy", "data", "model")


def settings_table(compared: Sequence[Experiment], differing: Sequence[Differing]) -> Table:
    """A row for each setting in which the runs are not alike."""
    heads = columns("what differs", *(one.name for one in compared))
    rows = tuple((text_cell(one.name), *map(text_cell, one.values)) for one in differing)
    counts = (text_cell("findings"), *(text_cell(len(one.rows)) for one in compared))
    return Table("runs", "What differs", tuple(heads), (*rows, counts))


def leading_table(first: str, second: str, differences: Differences, among: int) -> Table:
    """The number that leads for each attack in both, their difference and what it shows."""
    heads = [
        *columns("adversary", "attack", "defence", *_inside(differences), "metric"),
        *map(ranged_column, (first, second)),
        ranged_column("difference"),
        *columns("verdict", "compared"),
    ]
    rows = [
        (*_about(one, differences), *_numbers(one), text_cell(verdict_words(one, among)), _pairing(one))
        for one in differences
    ]
    note = (
        f"A difference is {second} less {first}, with its 95% interval. A verdict needs an interval widened "
        f"for the {among} differences judged on this page."
    )
    return _table(f"{first} and {second}, attack by attack", heads, rows, note=note)


def full_table(first: str, second: str, differences: Differences) -> Table:
    """Every number that both have."""
    heads = [
        *columns("adversary", "attack", "defence", *_inside(differences), "metric"),
        *map(ranged_column, (first, second)),
        ranged_column("difference"),
        *columns("interval", "compared"),
    ]
    rows = [
        (*_about(one, differences), *_numbers(one), text_cell(_beside_zero(one)), _pairing(one))
        for one in differences
    ]
    note = "Of differences that are nothing, one in twenty lies outside its interval."
    caption = f"All {len(rows)} numbers of {first} and {second}"
    return _table(caption, heads, rows, filterable=True, folded=True, note=note)


def pooled_table(name: str, measures: Sequence[Measure]) -> Table:
    """Every number over all seeds."""
    heads = [*columns("adversary", "attack", "defence", "metric"), ranged_column("over all seeds")]
    heads += [*columns("lowest", "highest", "seeds", numeric=True)]
    rows = [
        (
            text_cell(m.row.adversary),
            text_cell(m.row.attack),
            defence_cell(m.row.defence),
            _metric(m),
            spanned_cell(m),
            number_cell(min(m.values)),
            number_cell(max(m.values)),
            text_cell(len(m.values)),
        )
        for m in measures
        if m.values
    ]
    return _table(f"All {len(rows)} numbers of {name}", heads, rows, filterable=True)


def _table(
    caption: str,
    heads: list[Column],
    rows: Sequence[tuple[Cell, ...]],
    *,
    note: str = "",
    filterable: bool = False,
    folded: bool = False,
) -> Table:
    return Table(slug(caption), caption, tuple(heads), tuple(rows), filterable, folded, note)


def _inside(differences: Differences) -> list[str]:
    """The columns that tell rows apart beyond attack and defence; the baseline is told by its metric."""
    on_trial = [one.row for one in differences if one.row.strategy != CENTRAL]
    return [key for key in VARYING if len({getattr(row, key) for row in on_trial}) > 1] + (
        ["cell"] if any(row.source != "audit" for row in on_trial) else []
    )


def _about(one: Difference, differences: Differences) -> tuple[Cell, ...]:
    row = one.row
    inside = (text_cell(getattr(row, key)) for key in _inside(differences))
    return (
        text_cell(row.adversary),
        text_cell(row.attack),
        defence_cell(row.defence),
        *inside,
        _metric(one.first),
    )


def _metric(measure: Measure) -> Cell:
    central = f", {CENTRAL}" if measure.row.strategy == CENTRAL else ""
    label = metric_words(measure.row.metric).label + central
    return Cell(label, label, (measure.row.metric + central,))


def _numbers(one: Difference) -> tuple[Cell, ...]:
    exact = tuple("" if end is None else repr(end) for end in (one.value, one.low, one.high))
    shown = Cell(signed(one), exact[0], exact)
    return spanned_cell(one.first), spanned_cell(one.second), shown


def _pairing(one: Difference) -> Cell:
    words = pairing_words(one)
    return Cell("unpaired" if one.unpaired else words, words, (words,), title=words)


def _beside_zero(one: Difference) -> str:
    if one.low is None or one.high is None:
        return "none"
    return "holds 0" if one.low <= 0 <= one.high else "apart from 0"
