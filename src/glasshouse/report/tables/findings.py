"""Every finding in a table, what defences leave of the attacks, and what each attack was given."""

from collections.abc import Sequence

from glasshouse.report.tables import table
from glasshouse.report.tables.table import Cell, Column, Table, columns, measure_cell, metric_cell, text_cell
from glasshouse.report.words.measures import short_verdict, verdict
from glasshouse.report.words.names import defence_words
from glasshouse.verdicts.measure import Measure, leaks
from glasshouse.verdicts.metrics import VETTING, metric_words
from glasshouse.verdicts.tradeoff import Tradeoff


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
                Cell(short, short, (full,), m.judged if leaks(m) else ""),
            )
        )
    return Table("findings", f"All {len(measures)} findings", tuple(heads), tuple(body), filterable=True)


def remains_table(tradeoffs: Sequence[Tradeoff]) -> Table:
    """What each defence leaves of the accuracy and of every attack, a column for each defence."""
    named = dict.fromkeys(point.defence for tradeoff in tradeoffs for point in tradeoff.points)
    defences = sorted(named, key=lambda name: name != "none")
    ends = [(name, f"{name} low", f"{name} high") for name in defences]
    heads = columns("adversary", "attack", "metric")
    heads += [Column(defence_words(name), csv, numeric=True) for name, csv in zip(defences, ends)]
    accuracy = {p.defence: p.accuracy for t in reversed(tradeoffs) for p in t.points if p.accuracy}
    utility = (text_cell(None), text_cell(None), metric_cell("test-accuracy"))
    rows: list[tuple[Cell, ...]] = [(*utility, *(measure_cell(accuracy.get(name)) for name in defences))]
    for tradeoff in tradeoffs:
        left = {point.defence: point.leak for point in tradeoff.points}
        rows.append(
            (
                text_cell(tradeoff.adversary),
                text_cell(", ".join(filter(None, (tradeoff.attack, tradeoff.context)))),
                metric_cell(tradeoff.points[0].leak.row.metric),
                *(measure_cell(left.get(name)) for name in defences),
            )
        )
    caption = "What is left of each attack under each defence; coloured where it still beats chance"
    return Table("defences-table", caption, tuple(heads), tuple(rows))


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
