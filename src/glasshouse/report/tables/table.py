"""Tables as values: headed columns whose cells know how they look, how they sort and what the CSV says."""

from dataclasses import dataclass

from glasshouse.report.words.matrix import severity_class
from glasshouse.report.words.names import defence_words
from glasshouse.spelling import DASH, interval, number
from glasshouse.verdicts.measure import Measure, leaks
from glasshouse.verdicts.metrics import metric_words


@dataclass(frozen=True)
class Column:
    """A heading; `csv` names the columns it becomes in the CSV."""

    label: str
    csv: tuple[str, ...]
    numeric: bool = False


def columns(*labels: str, numeric: bool = False) -> list[Column]:
    """A column under each label, named so in the CSV too."""
    return [Column(label, (label,), numeric) for label in labels]


@dataclass(frozen=True)
class Cell:
    """What is shown, the key it sorts by, and its CSV values (one for each of the column's names).

    `title` is shown on demand.
    """

    text: str
    sort: str
    csv: tuple[str, ...]
    mark: str = ""
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A captioned table; `name` is its id on the page and its file name as CSV, `folded` opens on a click."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    filterable: bool = False
    folded: bool = False
    note: str = ""


def text_cell(value: object) -> Cell:
    """A cell that shows a word or a whole number, or a dash for nothing."""
    text = "" if value is None else str(value)
    return Cell(text or DASH, text, (text,))


def number_cell(value: float | None, unit: str = "") -> Cell:
    """A cell with a number, rounded to look at, exact to sort and in the CSV."""
    exact = "" if value is None else repr(value)
    return Cell(number(value, unit), exact, (exact,))


def interval_cell(low: float | None, high: float | None, unit: str = "") -> Cell:
    """A cell with an interval, sorted by its lower end, two columns in the CSV."""
    ends = ("" if low is None else repr(low), "" if high is None else repr(high))
    return Cell(interval(low, high, unit), ends[0], ends)


def measure_cell(measure: Measure | None) -> Cell:
    """A value whose interval goes into the CSV, marked where it is a leak."""
    if measure is None:
        return Cell(DASH, "", ("", "", ""))
    mark = severity_class(measure) if leaks(measure) else ""
    shown = number_cell(measure.value, metric_words(measure.row.metric).unit)
    return Cell(shown.text, shown.sort, (*shown.csv, *interval_cell(measure.low, measure.high).csv), mark)


def spanned_cell(measure: Measure | None) -> Cell:
    """A value with its interval, a dash where there is none."""
    if measure is None:
        return Cell(DASH, "", ("", "", ""))
    shown, ends = number_cell(measure.value), interval_cell(measure.low, measure.high)
    text = shown.text if measure.low is None else f"{shown.text} ({ends.text})"
    return Cell(text, shown.sort, (*shown.csv, *ends.csv))


def defence_cell(defence: str | None) -> Cell:
    """A defence's short name; the CSV has it in full."""
    name = defence_words(defence)
    return Cell(name, name, (defence or "none",))


def metric_cell(metric: str) -> Cell:
    """A metric's label; the CSV has its name."""
    return Cell(metric_words(metric).label, metric, (metric,))


def ranged_column(label: str) -> Column:
    """A column of numbers whose intervals go into the CSV."""
    return Column(label, (label, f"{label} low", f"{label} high"), numeric=True)
