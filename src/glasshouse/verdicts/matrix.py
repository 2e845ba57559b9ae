"""Adversaries by defences: each one's strongest attack, and who learns no more than a weaker one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from glasshouse.verdicts.answers import AdversaryAnswers, Answer
from glasshouse.verdicts.informed import knows_defence, uninformed
from glasshouse.verdicts.measure import Measure, grouped, leaks, ordered_adversaries
from glasshouse.verdicts.outcome import Outcome, Severity, about_data, degree, outcome, severity, strongest

WEAKER = {
    "owner": ("outsider",),
    "client": ("outsider", "owner"),
    "blind server": ("outsider", "owner"),
    "curious server": ("outsider", "owner", "blind server"),
    "blind crafting server": ("outsider", "owner", "blind server"),
    "crafting server": ("outsider", "owner", "curious server", "blind server", "blind crafting server"),
}
"""Who can do what an adversary can, and less: the least access first."""

COSTS = (
    "test-accuracy",
    "bytes-up",
    "bytes-down",
    "training-seconds",
    "epsilon-spent-record",
    "epsilon-spent-client",
)
"""The metrics that say what a defence costs, and what it spends."""


@dataclass(frozen=True)
class Cell:
    """What one adversary learns under one defence: its strongest attack of each family, the strongest first.

    `untried` has a measure for each attack that could not be tried and says why. Without any of them nobody
    asked.
    """

    adversary: str
    defence: str
    leads: tuple[Measure, ...] = ()
    untried: tuple[Measure, ...] = ()

    @property
    def strongest(self) -> Measure | None:
        """The attack that got furthest."""
        return self.leads[0] if self.leads else None

    @property
    def outcome(self) -> Outcome | None:
        """What came out; null where nobody asked."""
        if self.strongest:
            return outcome(self.strongest)
        return "could not be tried" if self.untried else None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return severity(self.strongest) if self.strongest else "none"

    @property
    def informed(self) -> bool:
        """Whether the strongest attack knows the defence."""
        return bool(self.strongest) and knows_defence(self.leads[0])


@dataclass(frozen=True)
class Row:
    """An adversary under every defence; `same_as` names a weaker one that learns as much."""

    adversary: str
    cells: tuple[Cell, ...]
    same_as: str | None = None

    @property
    def fools(self) -> bool:
        """Whether all that it is shown to do is to fool the model, which says nothing of the data."""
        known = [cell.strongest for cell in self.cells if cell.strongest]
        return bool(known) and not any(map(about_data, known))


@dataclass(frozen=True)
class Matrix:
    """Every adversary under every defence, undefended first, and what each defence costs."""

    defences: tuple[str, ...]
    rows: tuple[Row, ...]
    costs: tuple[tuple[str, tuple[Measure | None, ...]], ...]

    def cell(self, adversary: str, defence: str) -> Cell:
        """One cell; empty where the adversary was not asked about."""
        cells = (cell for row in self.rows for cell in row.cells)
        return next(
            (cell for cell in cells if (cell.adversary, cell.defence) == (adversary, defence)),
            Cell(adversary, defence),
        )

    def of(self, defences: Sequence[str]) -> "Matrix":
        """The same under some of the defences alone."""
        places = [place for place, name in enumerate(self.defences) if name in defences]
        rows = (replace(row, cells=tuple(row.cells[place] for place in places)) for row in self.rows)
        costs = ((metric, tuple(known[place] for place in places)) for metric, known in self.costs)
        return Matrix(tuple(self.defences[place] for place in places), tuple(rows), tuple(costs))


def matrix(measures: Sequence[Measure]) -> Matrix:
    """The matrix of the measures of an audit; those of the central baseline are not on trial."""
    named = dict.fromkeys(m.row.defence or "none" for m in measures)
    defences = tuple(sorted(named, key=lambda name: name != "none"))
    cells = {
        (who, defence): _cell(who, defence, measures)
        for who in ordered_adversaries(measures)
        for defence in defences
    }
    rows: list[Row] = []
    for who in ordered_adversaries(measures):
        own = tuple(cells[who, defence] for defence in defences)
        rows.append(Row(who, own, _same_as(who, own, rows)))
    return Matrix(defences, tuple(rows), _costs(defences, measures))


def echoed(adversary: str, answer: Answer, others: Sequence[AdversaryAnswers]) -> Measure | None:
    """What a weaker adversary gets in the same family, where that is as much as this answer; else null."""
    for weaker in WEAKER.get(adversary, ()):
        for other in others:
            for theirs in other.answers if other.adversary == weaker else ():
                if outcome(answer.lead) == "leaks" and _as_much(theirs.lead, answer.lead):
                    return theirs.lead
    return None


def _cell(adversary: str, defence: str, measures: Sequence[Measure]) -> Cell:
    there = [
        m
        for m in measures
        if m.row.adversary == adversary and (m.row.defence or "none") == defence and leaks(m)
    ]
    tried = [m for m in there if m.value is not None]
    ran = {uninformed(m.row.attack) for m in tried}
    untried = tuple(m for m in there if uninformed(m.row.attack) not in ran)
    return Cell(adversary, defence, tuple(_leads(tried)), untried)


def _leads(measures: Sequence[Measure]) -> list[Measure]:
    """The strongest attack of each family, the strongest first; those on training data before others."""
    families = grouped(measures, lambda m: m.row.family).values()
    waiting = [best for family in families if (best := strongest(family)) is not None]
    ordered: list[Measure] = []
    while waiting:
        first = strongest([m for m in waiting if about_data(m)] or waiting)
        assert first is not None
        ordered.append(first)
        waiting = [m for m in waiting if m is not first]
    return ordered


def _same_as(adversary: str, own: Sequence[Cell], rows: Sequence[Row]) -> str | None:
    """The weakest adversary that, under every defence, gets as much of whatever this one gets."""
    if not any(cell.outcome == "leaks" for cell in own):
        return None
    for weaker in WEAKER.get(adversary, ()):
        for row in rows:
            if row.adversary == weaker and all(map(_covers, row.cells, own)):
                return weaker
    return None


def _covers(weaker: Cell, stronger: Cell) -> bool:
    """Whether the weaker adversary gets as much in each family in which the stronger one gets anything."""
    wanted = [lead for lead in stronger.leads if outcome(lead) == "leaks"]
    return all(any(_as_much(theirs, lead) for theirs in weaker.leads) for lead in wanted)


def _as_much(theirs: Measure, lead: Measure) -> bool:
    """Whether one measure is of the same thing as another, and shows at least as much."""
    if theirs.row.family != lead.row.family or outcome(theirs) != "leaks":
        return False
    return (degree(theirs) or 0.0) >= (degree(lead) or 0.0)


def _costs(
    defences: Sequence[str], measures: Sequence[Measure]
) -> tuple[tuple[str, tuple[Measure | None, ...]], ...]:
    """What was measured of each cost, under each defence."""
    rows = []
    for metric in COSTS:
        known: dict[str, Measure] = {}
        for m in measures:
            if m.row.metric == metric and not m.row.adversary:
                known.setdefault(m.row.defence or "none", m)
        if known:
            rows.append((metric, tuple(known.get(defence) for defence in defences)))
    return tuple(rows)
