"""The matrix of adversaries and defences in words: outcomes, severity, costs, what could not be tried."""

from collections.abc import Sequence

from glasshouse.report.words.measures import expert
from glasshouse.report.words.names import adversary_words, attack_words, defence_words
from glasshouse.spelling import DASH, interval, listed, number
from glasshouse.verdicts.answers import AdversaryAnswers
from glasshouse.verdicts.informed import knows_defence
from glasshouse.verdicts.matrix import Cell, Matrix, Row
from glasshouse.verdicts.measure import Measure, grouped
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.outcome import Severity, outcome, severity

DOTS: dict[Severity, int] = {"none": 0, "slight": 1, "moderate": 2, "severe": 3, "total": 4}
"""How many of four dots are filled, so that severity is no matter of colour alone."""

_COST_UNITS = {
    "test-accuracy": "accurate",
    "bytes-up": "up",
    "bytes-down": "down",
    "training-seconds": "training",
    "epsilon-spent-record": "epsilon, record",
    "epsilon-spent-client": "epsilon, client",
}
_COST_NAMES = {
    "test-accuracy": "test accuracy",
    "bytes-up": "sent by a client, a round",
    "bytes-down": "sent to a client, a round",
    "training-seconds": "core-seconds of training",
    "epsilon-spent-record": "epsilon spent, of a record",
    "epsilon-spent-client": "epsilon spent, of a client",
}


def severity_class(measure: Measure) -> str:
    """The class that colours a measure: its severity, or what came out where it leaks nothing."""
    came = outcome(measure)
    if came == "leaks":
        return f"leaks {severity(measure)}"
    return "untried" if came == "could not be tried" else "nothing"


def cell_class(cell: Cell) -> str:
    """The class that colours a cell."""
    if cell.strongest:
        return severity_class(cell.strongest)
    return "untried" if cell.untried else "unasked"


def dots(grade: Severity) -> str:
    """Severity as four dots, filled from the left."""
    filled = DOTS[grade]
    return "\N{BLACK CIRCLE}" * filled + "\N{WHITE CIRCLE}" * (4 - filled)


def outcome_words(measure: Measure) -> str:
    """What came out, with its severity where it leaks."""
    came = outcome(measure)
    return f"{came}: {severity(measure)}" if came == "leaks" else came


def attack_form(measure: Measure) -> str:
    """The attack's short name, which says so where it knows the defence."""
    name = attack_words(measure.row.attack or measure.row.family)
    return f"{name}, adaptive" if knows_defence(measure) else name


def cell_number(measure: Measure) -> str:
    """The value under its metric's name."""
    words = metric_words(measure.row.metric)
    return f"{words.label} {number(measure.value, words.unit)}"


def cell_details(cell: Cell) -> str:
    """All that stands behind a cell: each family's strongest attack in full, and what could not be tried."""
    lines = [f"{m.row.attack or m.row.family}: {expert(m)}" for m in cell.leads]
    lines += [f"{m.row.attack or m.row.family} could not be tried: {m.reason}" for m in cell.untried]
    return "\n".join(lines)


def same_as_sentence(row: Row) -> str:
    """Says that a weaker adversary learns as much."""
    return f"learns no more than the {_lower(row.same_as)}" if row.same_as else ""


def cost_name(metric: str) -> str:
    """What a cost is called beside the matrix."""
    return _COST_NAMES.get(metric, metric_words(metric).label)


def cost_unit(metric: str) -> str:
    """What a cost is called beside its number, where there is little room."""
    return _COST_UNITS.get(metric, metric_words(metric).label)


def cost_words(measure: Measure | None) -> str:
    """A cost in the unit people think in; a dash where it was not measured."""
    if measure is None or measure.value is None:
        return DASH
    return _in_unit(measure.row.metric, measure.value)


def cost_interval(measure: Measure | None) -> str:
    """The 95% interval of a cost; empty where there is none."""
    if measure is None or measure.low is None or measure.high is None:
        return ""
    if measure.row.metric == "test-accuracy":
        return f"{measure.low * 100:.1f} to {measure.high * 100:.1f}"
    return interval(measure.low, measure.high)


def untried_lines(matrix: Matrix) -> list[str]:
    """A line for each reason that something could not be tried: the attacks, whose they are, under what."""
    cells = [cell for row in matrix.rows for cell in row.cells]
    missing = [m for cell in cells for m in cell.untried]
    lines = []
    for (who, reason), found in grouped(missing, lambda m: (m.row.adversary or "", m.reason)).items():
        attacks = listed(list(dict.fromkeys(attack_words(m.row.attack or m.row.family) for m in found)))
        under = _under([m.row.defence or "none" for m in found], matrix.defences)
        lines.append(f"{adversary_words(who).label}: {attacks}{under}: {reason}.")
    return lines


def _under(defences: Sequence[str], tried: Sequence[str]) -> str:
    named = list(dict.fromkeys(defences))
    if set(named) == set(tried):
        return ""
    return f" under {listed([defence_words(name) for name in named])}" if named != ["none"] else " undefended"


def _in_unit(metric: str, value: float) -> str:
    if metric == "test-accuracy":
        return f"{value * 100:.1f}%"
    if metric.startswith("bytes"):
        return f"{value / 1e3:,.1f} kB"
    if metric.endswith("seconds"):
        return f"{value:,.1f} s"
    return "no bound" if value == float("inf") else f"{value:.3g}"


def _lower(adversary: str | None) -> str:
    return adversary_words(adversary or "").label.lower()


def card_line(card: AdversaryAnswers, matrix: Matrix) -> str:
    """What one adversary learns without a defence, in a line."""
    row = next((row for row in matrix.rows if row.adversary == card.adversary), None)
    if row is None:
        return ""
    same = same_as_sentence(row)
    cell = next((cell for cell in row.cells if cell.defence == card.defence), row.cells[0])
    if cell.strongest is None:
        return "could not be tried here"
    came = outcome_words(cell.strongest)
    line = f"{came} ({attack_form(cell.strongest)}, {cell_number(cell.strongest)})"
    return f"{same}; {line}" if same else line


def grade(measure: Measure) -> str:
    """How bad it is, in a word."""
    return severity(measure)
