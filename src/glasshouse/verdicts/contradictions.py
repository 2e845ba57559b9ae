"""Where what was measured and what the accountant says cannot both be right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glasshouse.spelling import number
from glasshouse.verdicts.measure import Measure

SPENT = {
    "epsilon-delta-lower-bound": "epsilon-spent-record",
    "epsilon-delta-lower-bound-client": "epsilon-spent-client",
}
"""For each bound from below, the accountant's number for the same unit.

Both are of adding or removing one unit; a bound that was tested on an exchange of two is converted where it
is made. The accountant's number for replacing a unit is larger, so that the comparison then errs on its side.
The pure `epsilon` is not compared: it holds only without a delta.
"""


@dataclass(frozen=True)
class Contradiction:
    """A lower bound above what the accountant says was spent: one of the two is wrong."""

    defence: str
    bound: Measure
    spent: Measure
    words: str


def contradictions(measures: Sequence[Measure]) -> list[Contradiction]:
    """Every bound whose low end exceeds what the same training spent, the farthest above first."""
    found = [
        Contradiction(bound.row.defence or "none", bound, spent, _words(bound, spent))
        for bound in measures
        for spent in _accounted(bound, measures)
        if bound.low is not None and spent.value is not None and bound.low > spent.value
    ]
    return sorted(found, key=lambda one: one.spent.known - (one.bound.low or 0.0))


def _accounted(bound: Measure, measures: Sequence[Measure]) -> Iterator[Measure]:
    """What the accountant says of the training and the unit that `bound` is about."""
    wanted = SPENT.get(bound.row.metric)
    for measure in measures:
        if wanted is not None and measure.row.metric == wanted and _training(measure) == _training(bound):
            yield measure


def _training(measure: Measure) -> tuple[str | None, ...]:
    row = measure.row
    return row.source, row.defence or "none", row.strategy, row.data, row.model


def _words(bound: Measure, spent: Measure) -> str:
    unit = "client" if spent.row.metric.endswith("client") else "record"
    return (
        f"{bound.row.defence}: the accountant says that one {unit} spends an epsilon of at most "
        f"{number(spent.value)}, and {bound.row.attack} shows with 95% confidence that it spends at least "
        f"{number(bound.low)}; one of the two is wrong"
    )
