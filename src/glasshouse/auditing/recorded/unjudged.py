"""What attacks say of a record where nobody can judge it: evidence, and no verdict."""

from collections.abc import Mapping, Sequence

import numpy as np

from glasshouse.auditing.attacking import Assignment
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.recorded.case import Recorded
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.exhibits import Statement
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate
from glasshouse.registry import parse_spec
from glasshouse.spelling import listed

UNJUDGED = "nobody says what the clients held; give the images with --members to have it judged"

ANSWER = (
    "NOT JUDGED: nobody says what the clients held, so that nobody can say how much is learned of it; give "
    "their images with --members, and like ones with --nonmembers."
)

MOST_CLASSES = 12
MOST_TOLD = 20
"""Of so many clients, or groups of them, the classes are told."""


def unjudged(recorded: Recorded, tried: Sequence[Assignment]) -> tuple[list[Finding], list[str]]:
    """What the attacks say, as rows, and in words: of label counts the classes of each client, or group."""
    rows: list[Finding] = []
    words: list[str] = []
    for one in tried:
        examination = examine(recorded.case, one.spec, one.access)
        rows += examination.findings()
        if isinstance(examination.evidence, LabelCounts):
            counted = examination.evidence.counted
            unknown = Estimate(None, None, None, len(counted), UNJUDGED)
            rows.append(_row(recorded, examination, "label-overlap", unknown))
            for group in counted[:MOST_TOLD]:
                rows += _classes(recorded, examination, group)
                words.append(f"The {one.access.adversary} counts {_in_words(recorded, group)}.")
    return rows, words


def statement(
    recorded: Recorded, found: Sequence[str], reasons: Mapping[Assignment, str | None]
) -> Statement:
    """The page's answer: there is none, what was found nevertheless, and what was not tried."""
    who: dict[tuple[str, str], list[str]] = {}
    for one, reason in reasons.items():
        if reason is not None:
            named = who.setdefault((parse_spec(one.spec, "attack")[0], reason), [])
            named.append(one.access.adversary)
    untried = tuple(f"{attack} ({listed(by)}): {reason}." for (attack, reason), by in who.items())
    notes = tuple(f"{line[0].upper()}{line[1:]}." for line in recorded.news)
    return Statement(answer=ANSWER, found=(*notes, *found), untried=untried)


def _who(recorded: Recorded, group: CountedLabels) -> str:
    names = [recorded.names[client] for client in group.clients]
    return listed(names) if len(names) <= 3 else f"{len(names)} clients together"


def _in_words(recorded: Recorded, group: CountedLabels) -> str:
    held = [f"{int(count)} of class {label}" for label, count in enumerate(group.counts) if count]
    more = f" and {len(held) - MOST_CLASSES} classes more" if len(held) > MOST_CLASSES else ""
    return f"of the images of {_who(recorded, group)} {', '.join(held[:MOST_CLASSES])}{more}"


def _classes(recorded: Recorded, examination: Examination, group: CountedLabels) -> list[Finding]:
    who, total = _who(recorded, group), int(group.counts.sum())
    return [
        _row(
            recorded,
            examination,
            "label-count",
            Estimate(float(group.counts[label]), None, None, total, f"of {who}"),
            f"/{who}/class-{label}",
        )
        for label in np.flatnonzero(group.counts)
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
