"""Who was trained on: scores for records or batches."""

from dataclasses import dataclass, field

import numpy as np

from glasshouse.evidence.evidence import Evidence


@dataclass(frozen=True, eq=False)
class MembershipScores(Evidence):
    """For each candidate or batch a score, higher for members, and a decision; both of shape (N,).

    A server may also say whose member it would be, `by_client` of shape (clients, N), and what it would have
    said after each observed round, `by_round` from the round's number to scores of shape (N,).
    """

    scores: np.ndarray
    decisions: np.ndarray
    by_client: np.ndarray | None = None
    by_round: dict[int, np.ndarray] = field(default_factory=dict)
