"""What the accountant says was spent: findings beside the accuracy, and what no promise covers."""

import math
from collections.abc import Iterator

from glasshouse.auditing.target import Target
from glasshouse.defences.promise import Promise
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate

NOTHING = "no noise is added, so that no epsilon is promised"


def promised(target: Target) -> list[Finding]:
    """The epsilon and the delta of each promise that the target's defences make, for all planned rounds."""
    return [finding for promise in target.case.promises for finding in _findings(target, promise)]


def _findings(target: Target, promise: Promise) -> Iterator[Finding]:
    finite = math.isfinite(promise.epsilon)
    missing = None if finite else uncovered(target) or NOTHING
    note = promise.described if finite else None
    for metric, value in ((f"epsilon-spent-{promise.unit}", promise.epsilon), ("delta", promise.delta)):
        yield target.case.subject.finding(
            "privacy",
            metric,
            Estimate(value if finite else None, None, None, promise.steps, missing),
            cell=f"{target.variant.cell}/{promise.unit}",
            note=note,
        )


def uncovered(target: Target) -> str | None:
    """What differential privacy, if it is in force, does not cover, in words."""
    reports = target.case.protocol.strategy.client_reports
    if not reports or not target.case.promises:
        return None
    return (
        "differential privacy covers the updates and not what each client reports beside them: "
        + "; ".join(reports)
    )
