"""Whose records an attack finds, and when: membership risk client by client and round by round."""

from typing import Any

import numpy as np

from glasshouse.auditing.truth import Truth
from glasshouse.evidence.evidence import Evidence
from glasshouse.evidence.membership import MembershipScores
from glasshouse.measures.membership import auc


def risks(evidence: Evidence, truth: Truth) -> list[dict[str, Any]]:
    """The AUC on each client's members, and after each observed round, where the attack says so much.

    A client's members stand against all non-members. An attack that knows clients apart is taken at its word
    about each; of any other, the one score it gives a record counts.
    """
    if not isinstance(evidence, MembershipScores) or truth.batches is not None:
        return []
    clients = len(truth.client_counts)
    told = [] if evidence.by_client is None else list(evidence.by_client)
    each = [*told, *[evidence.scores] * (clients - len(told))]  # it cannot know of clients it never saw
    rows = [_risk("client", k, each[k], truth.holder == k, truth) for k in range(clients)]
    rows += [_risk("round", number, own, truth.member, truth) for number, own in evidence.by_round.items()]
    return rows


def _risk(kind: str, index: int, scores: np.ndarray, inside: np.ndarray, truth: Truth) -> dict[str, Any]:
    chosen = inside | ~truth.member
    found = auc(scores[chosen], inside[chosen])
    return found.entries() | {"kind": kind, "index": index, "chance": 0.5}
