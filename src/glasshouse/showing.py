"""Results and differences as a few lines of text, and as the tables that a notebook shows."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from glasshouse.spelling import DASH, defence_words, interval, number
from glasshouse.verdicts.answers import AdversaryAnswers, answers_by_adversary
from glasshouse.verdicts.differences import Difference
from glasshouse.verdicts.measure import Measure, federated
from glasshouse.verdicts.metrics import CENTRAL, about_the_model, family_words, metric_words
from glasshouse.verdicts.outcome import severity, strongest
from glasshouse.verdicts.pooling import pooled

if TYPE_CHECKING:
    from glasshouse.results import Results

SHOWN = 40
"""As many rows of a table a notebook shows."""

TINTS = {"slight": "#f2c54d33", "moderate": "#ec963955", "severe": "#d8532d77", "total": "#a23413aa"}
"""The page's colours of how bad a leak is, so thin that they go with dark and light."""

STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
CELL = "padding:.25em .8em;border-bottom:1px solid #8886;text-align:{}"


class Differences(tuple[Difference, ...]):
    """What two attacks, defences or runs differ by: a `Difference` for each number that they share."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(difference_line, self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads = ("adversary", "attack", "defence", "metric", "first", "second", "difference", "verdict")
        return _table(heads, [(_difference_cells(one), "") for one in self], numbers={4, 5, 6})


def difference_line(one: Difference) -> str:
    """A difference in a line: what is compared, both numbers, the difference and what it shows."""
    unit = metric_words(one.row.metric).unit
    both = (f"{name} {_ranged(m, unit)}" for name, m in zip(one.names, (one.first, one.second)))
    paired = f", {pairing_words(one)}" if one.value is not None else ""
    shown = f"difference {signed(one)}{paired}: {verdict_words(one)}"
    return f"{about_words(one)}, {metric_label(one.first)}: {', '.join(both)}; {shown}".removeprefix(", ")


def about_words(one: Difference) -> str:
    """The adversary, the attack and the defence, as far as they are not what is compared."""
    return ", ".join(filter(None, (one.row.adversary, _shared_attack(one), _shared_defence(one))))


def metric_label(measure: Measure) -> str:
    """The metric, and whether it is one of the baseline."""
    central = " of the model trained centrally" if measure.row.strategy == CENTRAL else ""
    return f"{metric_words(measure.row.metric).label}{central}"


def signed(one: Difference) -> str:
    """The difference with its sign and interval."""
    if one.value is None:
        return "not known"
    unit = metric_words(one.row.metric).unit
    plus = "+" if one.value > 0 else ""
    text = f"{plus}{number(one.value, unit)}"
    return text if one.low is None else f"{text} ({interval(one.low, one.high, unit)})"


def pairing_words(one: Difference) -> str:
    """Whether the two were compared record by record, or why not."""
    if one.unpaired:
        return f"unpaired as {one.unpaired}"
    over = " over the seeds of both" if one.seeds_differ else ""
    return f"paired{over}, n = {one.estimate.n}"


def verdict_words(one: Difference, among: int = 1) -> str:
    """What the difference shows, with the second side's name."""
    said = one.verdict(among)
    if said not in ("more", "less"):
        return said
    if not one.of_leak:
        return f"{'higher' if said == 'more' else 'lower'} with {one.names[1]}"
    verb = "is fooled" if one.row.family in about_the_model() else "leaks"
    return f"{verb} {said} with {one.names[1]}"


def summary(results: "Results") -> str:
    """A run in a few lines: the strongest attack of each adversary, undefended where that was measured."""
    audited = [row for row in results.findings if row.source == "audit"]
    measures = pooled(audited, same_records=results.same_records)
    lines = [f"{len(results.findings):,} findings{_seeds(results)} in {results.folder}"]
    lines += [f"  {line}" for line in map(_answer_line, answers_by_adversary(federated(measures)))]
    if not audited:
        cells = dict.fromkeys(row.cell for row in results.findings)
        names = dict.fromkeys(row.source for row in results.findings)
        lines.append(f"  {', '.join(names)}: {len(cells)} cells measured")
    return "\n".join([*lines, f"  page: {results.report}"])


def as_html(results: "Results") -> str:
    """A run as a table in the page's colours: the strongest attack of each adversary under each defence."""
    measures = federated(pooled(results.findings, same_records=results.same_records))
    rows = []
    for adversary, defence, strong in _strongest(measures):
        words = metric_words(strong.row.metric)
        ends = interval(strong.low, strong.high, words.unit)
        cells = (adversary, defence_words(defence), strong.row.attack or DASH, words.label)
        numbers = (number(strong.value, words.unit), ends, number(strong.chance, words.unit))
        rows.append(((*cells, *numbers, _verdict(strong)), TINTS.get(severity(strong), "")))
    heads = (
        "adversary",
        "defence",
        "strongest attack",
        "metric",
        "value",
        "95% interval",
        "chance",
        "verdict",
    )
    told = f"{len(results.findings):,} findings{_seeds(results)} in {results.folder}"
    left = len(rows) - SHOWN
    more = f"<p>{left} more rows are on the page.</p>" if left > 0 else ""
    return f"<p>{escape(told)}</p>{_table(heads, rows[:SHOWN], numbers={4, 5, 6})}{more}"


def _answer_line(one: AdversaryAnswers) -> str:
    measures = [line.lead for answer in one.answers for line in answer.lines]
    strong = strongest(measures)
    assert strong is not None
    under = "" if one.defence == "none" else f" ({defence_words(one.defence)})"
    if strong.value is None:
        return f"{one.adversary}{under}: {_verdict(strong)}"
    words = metric_words(strong.row.metric)
    chance = "" if strong.chance is None else f", chance {number(strong.chance, words.unit)}"
    shown = f"{words.label} {_ranged(strong, words.unit)}{chance}"
    return f"{one.adversary}{under}: {strong.row.attack}, {shown}: {_verdict(strong)}"


def _strongest(measures: Sequence[Measure]) -> Iterable[tuple[str, str, Measure]]:
    """Of each adversary under each defence the attack that shows most."""
    defences = dict.fromkeys(m.row.defence or "none" for m in measures)
    for defence in defences:
        for one in answers_by_adversary([m for m in measures if (m.row.defence or "none") == defence]):
            strong = strongest([line.lead for answer in one.answers for line in answer.lines])
            assert strong is not None
            yield one.adversary, defence, strong


def _verdict(measure: Measure) -> str:
    """What came of an attack, as the page says it."""
    family = family_words(measure.row.family)
    if measure.value is None:
        return "could not be tried"
    if measure.judged == "leak":
        return f"{family.found}: {severity(measure)}"
    return family.not_found if measure.judged in ("clear", "below") else "not judged"


def _difference_cells(one: Difference) -> tuple[str, ...]:
    row, words = one.row, metric_words(one.row.metric)
    both = (f"{name} {_ranged(m, words.unit)}" for name, m in zip(one.names, (one.first, one.second)))
    attack, defence = _shared_attack(one) or DASH, _shared_defence(one) or DASH
    return (
        row.adversary or DASH,
        attack,
        defence,
        metric_label(one.first),
        *both,
        signed(one),
        verdict_words(one),
    )


def _shared_attack(one: Difference) -> str:
    """The attack, unless it is what is compared."""
    return (one.row.attack or "") if one.first.row.attack == one.second.row.attack else ""


def _shared_defence(one: Difference) -> str:
    """The defence, unless it is what is compared."""
    return defence_words(one.row.defence) if one.first.row.defence == one.second.row.defence else ""


def _ranged(measure: Measure, unit: str) -> str:
    """A value with its interval."""
    text = number(measure.value, unit)
    return text if measure.low is None else f"{text} ({interval(measure.low, measure.high, unit)})"


def _seeds(results: "Results") -> str:
    seeds = {finding.seed for finding in results.findings if finding.seed is not None}
    return f" over {len(seeds)} seeds" if len(seeds) > 1 else ""


def _table(heads: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], numbers: set[int]) -> str:
    """A table whose rows have a tint each; the columns of `numbers` are set to the right."""
    sides = ["right" if place in numbers else "left" for place in range(len(heads))]
    head = "".join(f'<th style="{CELL.format(side)}">{escape(name)}</th>' for name, side in zip(heads, sides))
    body = ""
    for cells, tint in rows:
        shown = "".join(
            f'<td style="{CELL.format(side)}">{escape(text)}</td>' for text, side in zip(cells, sides)
        )
        body += f'<tr style="background:{tint}">{shown}</tr>' if tint else f"<tr>{shown}</tr>"
    return f'<table style="{STYLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
