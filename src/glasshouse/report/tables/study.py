"""A study's tables: its claims with their verdicts, and printed numbers beside measured ones."""

from collections import Counter
from collections.abc import Iterator, Sequence

from glasshouse.exhibits import StudyTable
from glasshouse.report.run import StudyPage
from glasshouse.report.tables import table
from glasshouse.report.tables.table import Cell, Column, Table, columns, number_cell, text_cell
from glasshouse.spelling import interval, slug
from glasshouse.verdicts.claims import HOLDS, MIXED, REFUTED, Verdict, correction
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.printed import OUTSIDE, WITHIN, printed_verdict

VERDICT_MARKS = {HOLDS: "held", REFUTED: "leak", MIXED: "leak"}
"""How a page marks a verdict, whole or in part."""
LONG = 40  # rows of printed numbers that a page shows without being asked


def study_tables(study: StudyPage | None, measures: Sequence[Measure]) -> list[Table]:
    """The tables of a study's run, the claims of its paper alone in sight; none for an audit."""
    verdicts = study.verdicts if study else ()
    tables = list(_claims_tables(verdicts))
    tables += [_laid_out(layout, folded=bool(verdicts)) for layout in (study.tables if study else ())]
    sources = dict.fromkeys(m.row.source for m in measures)
    return tables + [
        _printed_table(source, [m for m in measures if m.row.source == source], folded=bool(verdicts))
        for source in sources
    ]


def _claims_tables(verdicts: Sequence[Verdict]) -> Iterator[Table]:
    """The paper's claims; then, to open, the study's own questions, and what every verdict rests on."""
    claimed, asked = ([verdict for verdict in verdicts if verdict.own == own] for own in (False, True))
    if claimed:
        yield _of_words(
            "claims",
            "What the paper claims, and what was found",
            ("claim", "in the paper", "printed", "measured", "verdict", "why they differ"),
            [(v.claim, v.section, v.printed, v.reason, v.verdict, v.why) for v in claimed],
            correction(verdicts),
        )
    if asked:
        yield _of_words(
            "asked",
            "What the study asks beyond it" if claimed else "What the study asks, and what was found",
            ("question", "measured", "verdict"),
            [(v.claim, v.reason, v.verdict) for v in asked],
            "" if claimed else correction(verdicts),
            folded=bool(claimed),
        )
    rests = [(v.claim, said) for v in verdicts for said in v.parts]
    if rests:
        yield _of_words(
            "parts",
            f"What the verdicts rest on, all {len(rests)} parts",
            ("claim", "measured is", "where", "measured", "verdict", "cells"),
            [(claim, p.what, p.where, p.measured, p.verdict, ", ".join(p.cells)) for claim, p in rests],
            folded=True,
        )


def _of_words(
    name: str,
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str = "",
    *,
    folded: bool = False,
) -> Table:
    """Words below headings; what is under `verdict` stands out."""
    cells = tuple(
        tuple(_verdict_cell(word) if head == "verdict" else text_cell(word) for head, word in zip(heads, row))
        for row in rows
    )
    return Table(name, caption, tuple(columns(*heads)), cells, folded=folded, note=note)


def _verdict_cell(verdict: str) -> Cell:
    return Cell(verdict, verdict, (verdict,), VERDICT_MARKS.get(verdict.removesuffix(" in part"), ""))


def study_sentence(study: StudyPage | None, measures: Sequence[Measure]) -> str:
    """How the paper's claims and its printed numbers fared; empty where there are none."""
    claimed = Counter(verdict.verdict for verdict in (study.verdicts if study else ()) if not verdict.own)
    sentences = []
    if claimed:
        counts = ", ".join(f"{verdict} ({count})" for verdict, count in claimed.most_common())
        sentences.append(f"The paper's {claimed.total()} claims: {counts}.")
    printed = [printed_verdict(m) for m in measures if m.row.printed is not None]
    if printed:
        within = printed.count(WITHIN)
        sentences.append(
            f"Of {len(printed)} printed numbers, {within or 'none'} {'lies' if within == 1 else 'lie'} "
            "within the interval measured here."
        )
    return " ".join(sentences)


def _printed_table(source: str, measures: Sequence[Measure], *, folded: bool) -> Table:
    # A cell names its data and model; what it may leave open is shown where it varies.
    extra = [key for key in ("attack", "strategy") if len({getattr(m.row, key) for m in measures}) > 1]
    heads = [
        *columns("cell", *extra, "defence", "metric"),
        *columns("printed", "measured", numeric=True),
        Column("95% interval", ("low", "high"), numeric=True),
        Column("over seeds", ("min", "max"), numeric=True),
        *columns("seeds", numeric=True),
        *columns("verdict"),
    ]
    rows = []
    for m in measures:
        unit, verdict = metric_words(m.row.metric).unit, printed_verdict(m)
        rows.append(
            (
                text_cell(m.row.cell),
                *(text_cell(getattr(m.row, key)) for key in extra),
                table.defence_cell(m.row.defence),
                table.metric_cell(m.row.metric),
                number_cell(m.row.printed, unit),
                number_cell(m.value, unit),
                table.interval_cell(m.low, m.high),
                _spread_cell(m),
                text_cell(len(m.values)),
                Cell(verdict, verdict, (verdict,), "leak" if verdict == OUTSIDE else ""),
            )
        )
    long = len(rows) > LONG
    caption = f"{source}: printed and measured{f', all {len(rows)} numbers' if long else ''}"
    name = slug("printed", source)
    return Table(name, caption, tuple(heads), tuple(rows), filterable=True, folded=folded or long)


def _laid_out(layout: StudyTable, *, folded: bool) -> Table:
    numeric = [all(not isinstance(row[i], str) for row in layout.rows) for i in range(len(layout.columns))]
    heads = tuple(Column(label, (label,), is_number) for label, is_number in zip(layout.columns, numeric))
    rows = tuple(
        tuple(number_cell(value) if isinstance(value, float) else text_cell(value) for value in row)
        for row in layout.rows
    )
    return Table(slug("table", layout.name), layout.title, heads, rows, folded=folded, note=layout.note)


def _spread_cell(measure: Measure) -> Cell:
    if len(measure.values) < 2:
        return Cell(interval(None, None), "", ("", ""))
    return table.interval_cell(min(measure.values), max(measure.values))
