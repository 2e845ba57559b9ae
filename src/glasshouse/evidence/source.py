"""Which client holds a record."""

from dataclasses import dataclass

import numpy as np

from glasshouse.evidence.evidence import Evidence, Judgement, Score
from glasshouse.evidence.truth import Question
from glasshouse.measures.estimate import proportion


@dataclass(frozen=True, eq=False)
class Sources(Evidence):
    """For each candidate the number of the client that is most likely to hold it, shape (N,)."""

    clients: np.ndarray

    about = "records"

    def judge(self, question: Question) -> Judgement:
        """Only members have a source; the blind guess always names the client that holds most of them."""
        holders = question.holder[question.member]
        right = self.clients[question.member] == holders
        largest = np.bincount(holders).max() / len(holders)
        return Judgement((Score("source-accuracy", proportion(int(right.sum()), len(holders)), largest),))
