"""What an attack needs of a case, and why it cannot run where the case does not have it."""

from collections.abc import Sequence
from typing import Any

from glasshouse.access import Access, AggregateAccess
from glasshouse.attacks.attack import Attack, kind_of
from glasshouse.auditing.case import Case
from glasshouse.errors import CannotRun
from glasshouse.evidence.canaries import NONE_INSERTED
from glasshouse.evidence.truth import Question

MISSING = {
    "candidates": "there is nobody to compare members with; set data.nonmembers above 0",
    "auxiliary": "the setting keeps no auxiliary images; set data.auxiliary above 0",
    "labels": "nobody knows the labels of the clients' images",
    "defence": "nobody knows which defences the clients use",
    "directions": NONE_INSERTED,
    "shadows": "no shadow models can be trained for this case",
    "online_shadows": "no shadow models can be trained for this case",
}
"""Why an attack cannot run that would have to know this."""


def held(name: str, case: Case, question: Question | None) -> Any:
    """What a case, and a question about it, hold of what an attack may ask to know, but for shadow models."""
    if name == "candidates":
        return None if question is None else question.candidates
    if name == "labels":
        return None if case.truth is None else dict(enumerate(case.truth.label_counts))
    return getattr(case, name)


def missing(name: str, case: Case, attack: Attack) -> str:
    """Why the attack cannot run, which would have to know `name`."""
    if name == "candidates" and case.truth is None:
        return "there are no candidates to ask about, as nobody knows the answers"
    kind = kind_of(attack)
    if name == "candidates" and kind is not None and kind.about == "test images":
        return "there are no test images to start from; set data.test above 0"
    return MISSING[name]


def check_protocol(case: Case, attack: Attack, adversary: type[Access]) -> None:
    """Refuse an attack on updates of clients that it says it cannot work with."""
    together = 1
    if issubclass(adversary, AggregateAccess):
        cohorts = [len(observed.delivery.clients) for observed in case.rounds]
        together = min((clients for clients in cohorts if clients > 1), default=1)
    of_rounds = [tuple(one.sizes.values()) for one in case.rounds if len(one.sizes) >= together]
    fewest = min(fewest_images(sizes, together) for sizes in of_rounds or [case.sizes])
    reason = attack.cannot(case.protocol, fewest)
    if reason is not None:
        raise CannotRun(reason)


def fewest_images(sizes: Sequence[int], together: int) -> int:
    """The fewest images that can be behind the updates of so many clients, of those with these `sizes`.

    >>> fewest_images((30, 10, 20), together=2)
    30
    """
    return sum(sorted(sizes)[:together])
