"""What the page of an audit opens with: the decision, who learns what under each defence, the frontier."""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.report.figures.defences import frontier_panels
from glasshouse.report.figures.panel import Panel
from glasshouse.report.rendering import COLUMNS
from glasshouse.report.run import Run
from glasshouse.report.words.matrix import untried_lines
from glasshouse.verdicts.contradictions import Contradiction, contradictions
from glasshouse.verdicts.decision import Decision, decide
from glasshouse.verdicts.frontier import Frontier, frontier
from glasshouse.verdicts.matrix import Matrix, matrix
from glasshouse.verdicts.measure import Measure, federated


@dataclass(frozen=True)
class Opening:
    """The first screens: what to do, and the matrix and the figure that it follows from.

    Of many defences `leading` has those to choose from and `others` the rest, null where there are none.
    `untried` are the attacks that could not be tried, with the reasons. `contradictions` are bounds from
    below that lie above what the accountant says; they come before everything.
    """

    decision: Decision
    matrix: Matrix
    leading: Matrix
    others: Matrix | None
    frontier: list[Panel]
    untried: list[str]
    contradictions: list[Contradiction]


def opening(run: Run, audited: Sequence[Measure], colours: dict[str, str]) -> Opening:
    """What the measures of an audit say first."""
    compared = frontier(audited)
    decision = decide(audited, run.limits)
    whole = matrix(federated(audited))
    first = _leading(whole, compared, decision)
    rest = [name for name in whole.defences if name not in first]
    return Opening(
        decision=decision,
        matrix=whole,
        leading=whole.of(first),
        others=whole.of(rest) if rest else None,
        frontier=frontier_panels(run, compared, colours),
        untried=untried_lines(whole),
        contradictions=contradictions(audited),
    )


def _leading(whole: Matrix, compared: Frontier, decision: Decision) -> list[str]:
    """All defences while they fit side by side; else those that met every attack and that none dominates."""
    if len(whole.defences) <= COLUMNS:
        return list(whole.defences)
    best = {choice.defence for choice in compared.undominated if not choice.partial}
    return [name for name in whole.defences if name in best | {"none", decision.defence}]
