"""What findings say to a paper's printed numbers."""

from glasshouse.verdicts.measure import Measure

WITHIN = "within the interval"
OUTSIDE = "printed number outside the interval"
UNPRINTED = "no printed number"
_ROUNDING = 1e-9


def printed_verdict(measure: Measure) -> str:
    """Where the printed number lies to what was measured."""
    printed = measure.row.printed
    if printed is None:
        return UNPRINTED
    if measure.value is None:
        return "not estimable"
    low, high = measure.low, measure.high
    if low is None or high is None:
        if len(measure.values) < 2:
            return "no interval to judge by"
        low, high = min(measure.values), max(measure.values)
    return WITHIN if low - _ROUNDING <= printed <= high + _ROUNDING else OUTSIDE
