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
    epsilon = Estimate(promise.epsilon if finite else None, None, None, promise.steps, _missing(finite))
    delta = Estimate(promise.delta if finite else None, None, None, promise.steps, _missing(finite))
    note = "; ".join(filter(None, [promise.described, uncovered(target)])) if finite else None
    for metric, estimate in ((f"epsilon-spent-{promise.unit}", epsilon), ("delta", delta)):
        yield target.case.subject.finding(
            "privacy", metric, estimate, cell=f"{target.variant.cell}/{promise.unit}", note=note
        )


def _missing(finite: bool) -> str | None:
    return None if finite else NOTHING


def uncovered(target: Target) -> str | None:
    """What differential privacy, if it is in force, does not cover, in words."""
    reports = target.case.protocol.strategy.client_reports
    if not reports or not target.case.promises:
        return None
    return (
        "differential privacy covers the updates and not what each client reports beside them: "
        + "; ".join(reports)
    )
