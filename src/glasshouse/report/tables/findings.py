"""Every finding in a table, what defences leave of the attacks, and what each attack was given."""

from collections.abc import Sequence

from glasshouse.report.tables import table
from glasshouse.report.tables.table import Cell, Column, Table, columns, measure_cell, metric_cell, text_cell
from glasshouse.report.words.matrix import grade, severity_class
from glasshouse.report.words.measures import short_verdict, verdict
from glasshouse.report.words.names import attack_words, defence_words
from glasshouse.verdicts.measure import Measure, leaks
from glasshouse.verdicts.metrics import VETTING, metric_words
from glasshouse.verdicts.tradeoff import Tradeoff

REMAINS = "What is left of each attack under each defence; coloured where it still beats chance"
SIDE_BY_SIDE = 7
"""Defences whose columns a page of 1280 pixels has room for."""


def findings_table(measures: Sequence[Measure]) -> Table:
    """Every finding with its verdict."""
    keys = ("source", "strategy", "data", "model", "seed")
    extra = [key for key in keys if len({_setting(m, key) for m in measures}) > 1]
    heads = [
        *columns("adversary", "attack", "defence", *extra, "metric"),
        *columns("value", numeric=True),
        Column("95% interval", ("low", "high"), numeric=True),
        *columns("chance", "n", numeric=True),
        *columns("verdict"),
    ]
    body = []
    for m in measures:
        unit = metric_words(m.row.metric).unit
        full, short = (verdict(m), short_verdict(m)) if leaks(m) else ("", "")
        if leaks(m) and m.judged == "leak":
            full = short = f"{short}: {grade(m)}"
        if m.value is None:
            full = short = f"not estimable: {m.reason}"
        body.append(
            (
                text_cell(m.row.adversary),
                text_cell(m.row.attack),
                table.defence_cell(m.row.defence),
                *(text_cell(_setting(m, key)) for key in extra),
                metric_cell(m.row.metric),
                table.number_cell(m.value, unit),
                table.interval_cell(m.low, m.high, unit),
                table.number_cell(m.chance, unit),
                text_cell(m.n),
                Cell(short, short, (full,), severity_class(m) if leaks(m) else ""),
            )
        )
    return Table("findings", f"All {len(measures)} findings", tuple(heads), tuple(body), filterable=True)


def remains_table(tradeoffs: Sequence[Tradeoff]) -> Table:
    """What each defence leaves of the accuracy and of every attack.

    It has a column for each defence, or a row for each where there are too many to stand side by side.
    """
    named = dict.fromkeys(point.defence for tradeoff in tradeoffs for point in tradeoff.points)
    defences = sorted(named, key=lambda name: name != "none")
    accuracy = {p.defence: p.accuracy for t in reversed(tradeoffs) for p in t.points if p.accuracy}
    lines: list[tuple[tuple[Cell, Cell, Cell], dict[str, Measure]]] = [
        ((text_cell(None), text_cell(None), metric_cell("test-accuracy")), accuracy)
    ]
    for trade in tradeoffs:
        metric = metric_cell(trade.points[0].leak.row.metric)
        about = (text_cell(trade.adversary), _attack_cell(trade), metric)
        lines.append((about, {point.defence: point.leak for point in trade.points}))
    if len(defences) > SIDE_BY_SIDE:
        return _remains_below(defences, lines)
    ends = [(name, f"{name} low", f"{name} high") for name in defences]
    heads = columns("adversary", "attack", "metric")
    heads += [Column(defence_words(name), csv, numeric=True) for name, csv in zip(defences, ends)]
    rows = [(*about, *(measure_cell(left.get(name)) for name in defences)) for about, left in lines]
    return Table("defences-table", REMAINS, tuple(heads), tuple(rows))


def _remains_below(
    defences: Sequence[str], lines: Sequence[tuple[tuple[Cell, Cell, Cell], dict[str, Measure]]]
) -> Table:
    heads = columns("adversary", "attack", "metric", "defence")
    heads += [Column("value", ("value", "low", "high"), numeric=True)]
    rows = [
        (*about, table.defence_cell(name), measure_cell(left[name]))
        for about, left in lines
        for name in defences
        if name in left
    ]
    return Table("defences-table", REMAINS, tuple(heads), tuple(rows), filterable=True)


def _attack_cell(tradeoff: Tradeoff) -> Cell:
    """An attack's short name; the CSV has its options."""
    shown, full = (
        ", ".join(filter(None, (name, tradeoff.context)))
        for name in (attack_words(tradeoff.attack), tradeoff.attack)
    )
    return Cell(shown, shown, (full,), title=full)


def assumptions_table(measures: Sequence[Measure]) -> Table | None:
    """What each attack was given beyond its access; None where no attack ran."""
    knowledge: dict[tuple[str, str], dict[str, None]] = {}
    for m in measures:
        if m.row.attack and m.value is not None and m.row.family != VETTING:
            known = knowledge.setdefault((m.row.adversary or "", m.row.attack), {})
            known.update(dict.fromkeys(m.row.assumes))
    if not knowledge:
        return None
    rows = []
    for (adversary, attack), known in knowledge.items():
        text = "; ".join(known)
        rows.append((text_cell(adversary), text_cell(attack), Cell(text or "nothing", text, (text,))))
    heads = columns("adversary", "attack", "given beyond its access")
    return Table("assumptions", "What each attack was given beyond its access", tuple(heads), tuple(rows))


def _setting(measure: Measure, key: str) -> str | int | None:
    """A key of the measure's row; an audit's findings are over all its seeds and have none of their own."""
    if key == "seed" and measure.row.source == "audit":
        return None
    value: str | int | None = getattr(measure.row, key)
    return value
