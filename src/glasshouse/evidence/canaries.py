"""Which way the coins of inserted canaries fell: a score for each, which bounds epsilon from below."""

from dataclasses import dataclass, replace

import numpy as np

from glasshouse.errors import CannotRun
from glasshouse.evidence.evidence import Evidence, Judgement, Score, check_numbers
from glasshouse.evidence.membership import EPSILON_DELTA
from glasshouse.evidence.truth import Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.learning.seeds import numpy_from
from glasshouse.measures.canaries import cosine_epsilon
from glasshouse.measures.membership import auc
from glasshouse.measures.one_run import one_run_bound

NONE_INSERTED = (
    "no canaries were inserted: only an audit that trains the federation itself can do that, and it does so "
    "where a defence promises privacy, or where the attack is named"
)

COIN_AUC = Metric(
    "AUC of coins",
    "tells which way the coin of an inserted canary fell, rightly in {value} cases",
    "a coin would get {chance}",
    leaks="none",  # canaries are nobody's records
    detail=True,
)

RECORD_METRICS = {"epsilon-delta-lower-bound": EPSILON_DELTA, "coin-auc": COIN_AUC}

RECORD_FAMILIES = {
    "canary-records": Family(
        "Canary records",
        "What do inserted records show of the privacy that one record has?",
        "epsilon-delta-lower-bound",
        judges=("canary", "canaries"),
    )
}

CLIENT_METRICS = {
    "epsilon-delta-lower-bound-client": Metric(
        "epsilon at delta of a client, lower bound",
        "shows, with 95% confidence, that a client spends an epsilon of at least {raw} at a small delta",
        "an attack that learns nothing shows {chance}",
        leaks="none",
        span=None,
        detail=True,
    ),
    "epsilon-estimate-client": Metric(
        "epsilon at delta of a client, estimate", "estimates {raw}", leaks="none", span=None, detail=True
    ),
    "coin-auc": COIN_AUC,
}

CLIENT_FAMILIES = {
    "canary-clients": Family(
        "Canary clients",
        "What do inserted clients show of the privacy that one client has?",
        "epsilon-delta-lower-bound-client",
        judges=("canary", "canaries"),
    )
}


@dataclass(frozen=True, eq=False)
class CanaryRecordScores(Evidence):
    """For each canary record a score, higher for those trained on, shape (2 K,): K pairs, one of each was."""

    scores: np.ndarray

    about = "records"
    metrics = RECORD_METRICS
    families = RECORD_FAMILIES

    def judge(self, question: Question) -> Judgement:
        """By the coins that chose one record of each pair."""
        if question.truth.canaries != "records":
            raise CannotRun(NONE_INSERTED)
        check_numbers("scores", self.scores, len(question.member))
        count = len(self.scores) // 2
        scores, coins = self.scores[:count] - self.scores[count:], question.member[:count]
        family, delta = question.record.family.exchanging(), question.record.delta
        rng = numpy_from(question.rng)
        bound = one_run_bound(scores, coins, rng, family=family, delta=delta, coins=True, signed=True)
        note = f"{bound.note}; {count} canaries in a training of their own, each with one of two wrong labels"
        return Judgement(
            (
                Score("epsilon-delta-lower-bound", replace(bound, note=note), 0.0),
                Score("coin-auc", auc(scores, coins), 0.5),
            )
        )


@dataclass(frozen=True, eq=False)
class CanaryClientScores(Evidence):
    """For each canary client the cosine of its direction with the sum of the updates, shape (K,).

    `dimension` is that of the space in which the directions were drawn.
    """

    cosines: np.ndarray
    dimension: int

    about = "records"
    metrics = CLIENT_METRICS
    families = CLIENT_FAMILIES

    def judge(self, question: Question) -> Judgement:
        """By the coins that chose the sign of each direction."""
        if question.truth.canaries != "clients":
            raise CannotRun(NONE_INSERTED)
        coins = question.member
        check_numbers("cosines", self.cosines, len(coins))
        family, delta = question.client.family.exchanging(), question.client.delta
        rng = numpy_from(question.rng)
        bound = one_run_bound(self.cosines, coins, rng, family=family, delta=delta, coins=True, signed=True)
        note = f"{bound.note}; {len(coins)} canaries in a training of their own, each with a sign by a coin"
        sent = np.where(coins, self.cosines, -self.cosines)
        return Judgement(
            (
                Score("epsilon-delta-lower-bound-client", replace(bound, note=note), 0.0),
                Score("epsilon-estimate-client", cosine_epsilon(sent, self.dimension, delta, rng)),
                Score("coin-auc", auc(self.cosines, coins), 0.5),
            )
        )
