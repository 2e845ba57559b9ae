"""What attacks say of a record where nobody can judge it: evidence, and no verdict."""

import numpy as np

from glasshouse.access import Access
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.recorded.case import Recorded
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate

UNJUDGED = "nobody says what the clients held; give the images with --members to have it judged"

MOST_TOLD = 20
"""Of so many clients, or groups of them, the classes are told."""


def unjudged(recorded: Recorded, spec: str, adversary: type[Access]) -> list[Finding]:
    """The label counts of each client, or group, as rows; that nobody knows whether they are right is one."""
    examination = examine(recorded.case, spec, adversary)
    if examination.reason is not None or not isinstance(examination.evidence, LabelCounts):
        return examination.findings()
    counted = examination.evidence.counted
    rows = [_row(recorded, examination, "label-overlap", Estimate(None, None, None, len(counted), UNJUDGED))]
    for one in counted[:MOST_TOLD]:
        rows += _classes(recorded, examination, one)
    return rows


def _classes(recorded: Recorded, examination: Examination, one: CountedLabels) -> list[Finding]:
    who = " and ".join(recorded.names[client] for client in one.clients)
    if len(one.clients) > 3:
        who = f"{len(one.clients)} clients together"
    total = int(one.counts.sum())
    return [
        _row(
            recorded,
            examination,
            "label-count",
            Estimate(float(one.counts[label]), None, None, total, f"of {who}"),
            f"/{who}/class-{label}",
        )
        for label in np.flatnonzero(one.counts)
    ]


def _row(
    recorded: Recorded, examination: Examination, metric: str, estimate: Estimate, place: str = ""
) -> Finding:
    return recorded.case.subject.finding(
        examination.family,
        metric,
        estimate,
        cell=f"{examination.cell}{place}",
        adversary=examination.adversary.adversary,
        attack=examination.spec,
        assumes=examination.granted,
        note=examination.note,
        seconds=examination.seconds,
    )
