"""Tables as values: headed columns whose cells know how they look, how they sort and what the CSV says."""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.findings import Finding
from glasshouse.report.measure import Measure, leaks
from glasshouse.report.tradeoff import Tradeoff
from glasshouse.report.words import DASH, defence_words, interval, metric_words, number


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
    """A captioned table; `name` is its id on the page and its file name as CSV."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    filterable: bool = False


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
            full = short = f"not estimable: {'; '.join(row.assumes) or 'no reason given'}"
        body.append(
            (
                text_cell(row.adversary),
                text_cell(row.attack),
                Cell(defence_words(row.defence), defence_words(row.defence), (row.defence or "none",)),
                *(text_cell(getattr(row, key)) for key in extra),
                Cell(metric_words(row.metric).label, row.metric, (row.metric,)),
                number_cell(row.value, unit),
                interval_cell(row.low, row.high),
                number_cell(row.chance, unit),
                text_cell(row.n),
                Cell(short, short, (full,), measure.judged if leaks(measure) else ""),
            )
        )
    return Table("findings", f"All {len(rows)} findings", columns, tuple(body), filterable=True)


def remains_table(tradeoffs: Sequence[Tradeoff]) -> Table:
    """What is left of every attack under each defence, a row for each defence."""
    defences = dict.fromkeys(point.defence for tradeoff in tradeoffs for point in tradeoff.points)
    columns = [Column("defence", ("defence",)), Column("test accuracy", ("test-accuracy",), numeric=True)]
    for tradeoff in tradeoffs:
        metric = tradeoff.points[0].leak.row.metric
        names = f"{tradeoff.adversary} / {tradeoff.attack} / {metric}"
        label = f"{tradeoff.adversary}: {tradeoff.attack}, {metric_words(metric).label}"
        columns.append(Column(label, (names, f"{names} low", f"{names} high"), numeric=True))
    rows = []
    for defence in sorted(defences, key=lambda name: name != "none"):
        here = [next((p for p in t.points if p.defence == defence), None) for t in tradeoffs]
        accuracy = next((p.accuracy.value for p in here if p and p.accuracy), None)
        cells = [Cell(defence_words(defence), defence_words(defence), (defence,)), number_cell(accuracy)]
        for point in here:
            if point is None:
                cells.append(Cell(DASH, "", ("", "", "")))
                continue
            leak, unit = point.leak, metric_words(point.leak.row.metric).unit
            ends = interval_cell(leak.low, leak.high).csv
            shown = number_cell(leak.value, unit, leak.judged)
            cells.append(Cell(shown.text, shown.sort, (*shown.csv, *ends), shown.mark))
        rows.append(tuple(cells))
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


def interval_cell(low: float | None, high: float | None) -> Cell:
    """A cell with an interval, sorted by its lower end, two columns in the CSV."""
    ends = ("" if low is None else repr(low), "" if high is None else repr(high))
    return Cell(interval(low, high), ends[0], ends)
