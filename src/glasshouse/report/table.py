"""Tables as values: headed columns whose cells know how they look, how they sort and what the CSV says."""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.findings import Finding
from glasshouse.report.measure import Measure, leaks
from glasshouse.report.tradeoff import Tradeoff
from glasshouse.report.words import defence_words
from glasshouse.spelling import DASH, interval, number
from glasshouse.verdicts.metrics import metric_words


@dataclass(frozen=True)
class Column:
    """A heading; `csv` names the columns it becomes in the CSV."""

    label: str
    csv: tuple[str, ...]
    numeric: bool = False


@dataclass(frozen=True)
class Cell:
    """What is shown, the key it sorts by, and its CSV values (one for each of the column's names)."""

    text: str
    sort: str
    csv: tuple[str, ...]
    mark: str = ""


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


def findings_table(rows: Sequence[Finding], judged: Sequence[Measure]) -> Table:
    """Every finding; `judged` holds one measure for each row, for its verdict."""
    extra = [
        k for k in ("source", "strategy", "data", "model", "seed") if len({getattr(r, k) for r in rows}) > 1
    ]
    columns = (
        *(Column(label, (label,)) for label in ("adversary", "attack", "defence", *extra, "metric")),
        Column("value", ("value",), numeric=True),
        Column("95% interval", ("low", "high"), numeric=True),
        Column("chance", ("chance",), numeric=True),
        Column("n", ("n",), numeric=True),
        Column("verdict", ("verdict",)),
    )
    body = []
    for row, measure in zip(rows, judged):
        unit = metric_words(row.metric).unit
        full, short = (measure.verdict, measure.short_verdict) if leaks(measure) else ("", "")
        if row.value is None:
            full = short = f"not estimable: {measure.reason}"
        body.append(
            (
                text_cell(row.adversary),
                text_cell(row.attack),
                Cell(defence_words(row.defence), defence_words(row.defence), (row.defence or "none",)),
                *(text_cell(getattr(row, key)) for key in extra),
                Cell(metric_words(row.metric).label, row.metric, (row.metric,)),
                number_cell(row.value, unit),
                interval_cell(row.low, row.high, unit),
                number_cell(row.chance, unit),
                text_cell(row.n),
                Cell(short, short, (full,), measure.judged if leaks(measure) else ""),
            )
        )
    return Table("findings", f"All {len(rows)} findings", columns, tuple(body), filterable=True)


def remains_table(tradeoffs: Sequence[Tradeoff]) -> Table:
    """What each defence leaves of the accuracy and of every attack, a column for each defence."""
    named = dict.fromkeys(point.defence for tradeoff in tradeoffs for point in tradeoff.points)
    defences = sorted(named, key=lambda name: name != "none")
    columns = [Column(label, (label,)) for label in ("adversary", "attack", "metric")]
    columns += [
        Column(defence_words(name), (name, f"{name} low", f"{name} high"), numeric=True) for name in defences
    ]
    accuracy = {p.defence: p.accuracy for t in reversed(tradeoffs) for p in t.points if p.accuracy}
    label = metric_words("test-accuracy").label
    utility = (text_cell(None), text_cell(None), Cell(label, "test-accuracy", ("test-accuracy",)))
    rows: list[tuple[Cell, ...]] = [(*utility, *(measure_cell(accuracy.get(name)) for name in defences))]
    for tradeoff in tradeoffs:
        left = {point.defence: point.leak for point in tradeoff.points}
        metric = tradeoff.points[0].leak.row.metric
        rows.append(
            (
                text_cell(tradeoff.adversary),
                text_cell(", ".join(filter(None, (tradeoff.attack, tradeoff.context)))),
                Cell(metric_words(metric).label, metric, (metric,)),
                *(measure_cell(left.get(name)) for name in defences),
            )
        )
    caption = "What is left of each attack under each defence; coloured where it still beats chance"
    return Table("defences-table", caption, tuple(columns), tuple(rows))


def text_cell(value: object) -> Cell:
    """A cell that shows a word or a whole number, or a dash for nothing."""
    text = "" if value is None else str(value)
    return Cell(text or DASH, text, (text,))


def number_cell(value: float | None, unit: str = "", mark: str = "") -> Cell:
    """A cell with a number, rounded to look at, exact to sort and in the CSV."""
    exact = "" if value is None else repr(value)
    return Cell(number(value, unit), exact, (exact,), mark)


def interval_cell(low: float | None, high: float | None, unit: str = "") -> Cell:
    """A cell with an interval, sorted by its lower end, two columns in the CSV."""
    ends = ("" if low is None else repr(low), "" if high is None else repr(high))
    return Cell(interval(low, high, unit), ends[0], ends)


def measure_cell(measure: Measure | None) -> Cell:
    """A value whose interval goes into the CSV, marked where it is a leak."""
    if measure is None:
        return Cell(DASH, "", ("", "", ""))
    mark = measure.judged if leaks(measure) else ""
    shown = number_cell(measure.value, metric_words(measure.row.metric).unit, mark)
    return Cell(shown.text, shown.sort, (*shown.csv, *interval_cell(measure.low, measure.high).csv), mark)
