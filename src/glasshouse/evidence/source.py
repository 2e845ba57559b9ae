"""Which client holds a record."""

from dataclasses import dataclass

import numpy as np

from glasshouse.evidence.evidence import Evidence, Judgement, Score, check_numbers
from glasshouse.evidence.truth import Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.exhibits import Exhibits, Records
from glasshouse.measures.estimate import proportion

METRICS = {
    "source-accuracy": Metric(
        "source accuracy",
        "names the client that held a training record, rightly in {value} cases",
        "always naming the largest client would be right in {chance}",
    ),
}

FAMILIES = {
    "source": Family("Source", "Which client held this record?", "source-accuracy"),
}


@dataclass(frozen=True, eq=False)
class Sources(Evidence):
    """For each candidate the number of the client that is most likely to hold it, shape (N,)."""

    clients: np.ndarray

    about = "records"
    metrics = METRICS
    families = FAMILIES

    def judge(self, question: Question) -> Judgement:
        """Only members have a source; the blind guess always names the client that holds most of them."""
        check_numbers("clients", self.clients, len(question.member), kinds="iu")
        holders = question.holder[question.member]
        right = self.clients[question.member] == holders
        largest = np.bincount(holders).max() / len(holders)
        columns = {"record": question.records[question.member], "client": holders}
        columns |= {"named": self.clients[question.member], "hit": right}
        return Judgement(
            (Score("source-accuracy", proportion(int(right.sum()), len(holders)), largest),),
            Exhibits(records=(Records(table="source", columns=columns),)),
        )
