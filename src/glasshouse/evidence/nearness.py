"""How near what an adversary holds lies to records."""

from dataclasses import dataclass, replace

import numpy as np

from glasshouse.evidence.evidence import Evidence, Judgement, Score, check_numbers
from glasshouse.evidence.truth import Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.learning.seeds import numpy_from
from glasshouse.measures.estimate import clustered_proportion

METRICS = {
    "nearest-member-share": Metric(
        "nearest record is a member",
        "receives samples whose nearest record was used for training in {value} cases",
        "with samples that say nothing of the training records it would be {chance}",
    ),
}

FAMILIES = {
    "disclosure": Family(
        "Samples",
        "Do the samples that the server sends lie nearer to training records than to others?",
        "nearest-member-share",
    ),
}


@dataclass(frozen=True, eq=False)
class Nearness(Evidence):
    """How far each candidate lies from each of K samples that the adversary holds, shape (K, N)."""

    distances: np.ndarray

    about = "records"
    metrics = METRICS
    families = FAMILIES

    def judge(self, question: Question) -> Judgement:
        """Among as many members as non-members, so that either is nearest to a sample that says nothing.

        Samples with the same nearest record are one observation: it is a member or not for all of them.
        """
        check_numbers("distances", self.distances, None, len(question.member))
        member, rng = question.member, numpy_from(question.rng)
        sides = [np.flatnonzero(member), np.flatnonzero(~member)]
        count = min(len(side) for side in sides)
        among = np.sort(np.concatenate([rng.permutation(side)[:count] for side in sides]))
        nearest = among[self.distances[:, among].argmin(1)]
        share = clustered_proportion(member[nearest], nearest)
        records = f"{len(np.unique(nearest))} different records of {len(among)}"
        share = replace(share, note=f"{len(nearest)} samples, nearest to {records}")
        return Judgement((Score("nearest-member-share", share, 0.5),))
