"""From an estimate to a verdict."""

from math import inf

from glasshouse.measures.estimate import Estimate
from glasshouse.verdicts.claims import Verdict

Region = tuple[float, float]
POSITIVE, NEGATIVE = (0.0, inf), (-inf, 0.0)


def judged(
    claim: str,
    estimate: Estimate | None,
    done: int,
    what: str,
    of: str,
    *,
    holds: Region = POSITIVE,
    refuted: Region = NEGATIVE,
) -> Verdict:
    """A claim `holds`, or is `refuted`, where the interval of the estimate lies in such a region.

    The reason says `what` is estimated, and of what: `{n}` in `of` stands for the number of observations.
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return undecided(claim, done)
    low, high = estimate.low, estimate.high
    inside = {"refuted": refuted, "holds": holds}
    decided = [verdict for verdict, (least, most) in inside.items() if least < low and high < most]
    reason = f"{what}: {estimate.value:+.3f}, 95% interval {low:+.3f} to {high:+.3f}{of.format(n=estimate.n)}"
    return Verdict(claim, (*decided, "not shown")[0], reason)


def undecided(claim: str, done: int) -> Verdict:
    """A claim that stays open: too few of its cells are `done`."""
    return Verdict(claim, "open", f"{done} of the cells that it needs are done")
