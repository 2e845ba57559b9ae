"""Who was trained on: a score for each record or batch."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from glasshouse.evidence.evidence import Evidence, Judgement, Score, check_numbers
from glasshouse.evidence.truth import NOBODY, Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.exhibits import Exhibits, Records, Risk, Roc
from glasshouse.learning.seeds import numpy_from
from glasshouse.measures import grouped
from glasshouse.measures.epsilon import epsilon_lower_bound
from glasshouse.measures.estimate import Estimate
from glasshouse.measures.membership import chance_at_fpr, roc
from glasshouse.measures.one_run import one_run_bound

BY_USER = "whole users or clients were drawn as members, not single records"
UNGROUPED = f"no interval: {BY_USER}, and whose records are whose is not known"
MIXED = f"no interval: {BY_USER}, and a batch mixes records of several"

LOW_RATES = {"1%": 0.01, "0.1%": 0.001, "0.01%": 0.0001}
"""The false positive rates at which true ones are counted."""


def lopsided(members: int) -> Metric:
    """Accuracy among `members` members for each non-member, as some papers report it."""
    return Metric(
        f"accuracy at {members}:1",
        f"is right in {{value}} cases where {members} of {members + 1} records are members",
        "always saying member would be right in {chance}",
        detail=True,
    )


EPSILON_DELTA = Metric(
    "epsilon at delta, lower bound",
    "shows, with 95% confidence, that a record spends an epsilon of at least {raw} at a small delta",
    "an attack that learns nothing shows {chance}",
    leaks="none",  # it holds for a family of mechanisms, and stands beside what an accountant says
    span=None,
    detail=True,
)

METRICS = {
    "auc": Metric(
        "AUC",
        "sees one record used for training and one that was not, and picks the right one in {value} cases",
        "a coin would get {chance}",
    ),
    "balanced-accuracy": Metric(
        "balanced accuracy",
        "tells members from non-members in {value} cases",
        "a coin would get {chance}",
    ),
    "tpr-at-1%-fpr": Metric(
        "TPR at 1% FPR",
        "points out {value} training records while wrongly accusing 1 of 100 others",
        "a blind guess would point out {chance}",
    ),
    "tpr-at-0.1%-fpr": Metric(
        "TPR at 0.1% FPR",
        "points out {value} training records while wrongly accusing 1 of 1000 others",
        "a blind guess would point out {chance}",
        detail=True,
    ),
    "tpr-at-0.01%-fpr": Metric(
        "TPR at 0.01% FPR",
        "points out {value} training records while wrongly accusing 1 of 10000 others",
        "a blind guess would point out {chance}",
        detail=True,
    ),
    "advantage": Metric(
        "advantage (TPR \N{MINUS SIGN} FPR)",
        "accuses members more often than others, by a rate of {raw}",
        "a blind guess would accuse both alike ({chance})",
        span=None,
        detail=True,
    ),
    "accuracy-at-5:1": lopsided(5),
    "accuracy-at-6:1": lopsided(6),
    "epsilon": Metric(
        "epsilon, lower bound",
        "shows, with 95% confidence, that training spends an epsilon of at least {raw}",
        "an attack that learns nothing shows {chance}",
        span=None,
    ),
    "epsilon-delta-lower-bound": EPSILON_DELTA,
}

FAMILIES = {
    "membership": Family("Membership", "Was this record used for training?", "auc"),
    "batch-membership": Family(
        "Membership of batches",
        "Was this batch of records used for training?",
        "auc",
        judges=("batch", "batches"),
    ),
}


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

    about = "records"
    metrics = METRICS
    families = FAMILIES

    def judge(self, question: Question) -> Judgement:
        """Beside a coin's scores; single records also bound epsilon from below, without and with a delta."""
        member = question.member
        check_numbers("scores", self.scores, len(member))
        check_numbers("decisions", self.decisions, len(member), kinds="b")
        nonmembers = int((~member).sum())
        groups = _groups(question)
        scores = [
            Score("auc", grouped.auc(self.scores, member, groups), 0.5),
            Score("balanced-accuracy", grouped.balanced_accuracy(self.decisions, member, groups), 0.5),
            Score("advantage", grouped.advantage(self.decisions, member, groups), 0.0),
        ]
        for name, fpr in LOW_RATES.items():
            rate = grouped.tpr_at_fpr(self.scores, member, fpr, groups)
            scores.append(Score(f"tpr-at-{name}-fpr", rate, chance_at_fpr(nonmembers, fpr)))
        scores = [replace(one, estimate=_judged(one.estimate, question)) for one in scores]
        if question.batches is None:
            scores.append(Score("epsilon", self._epsilon(question), 0.0))
            scores.append(Score("epsilon-delta-lower-bound", self._epsilon_at_delta(question), 0.0))
        broken_down = question.detailed and question.batches is None
        risks = tuple(self._risks(question)) if broken_down else ()
        drawn = Exhibits(roc=(self._roc(question),), risk=risks, records=(self._records(question),))
        return Judgement(tuple(scores), drawn)

    def _records(self, question: Question) -> Records:
        """The answer about each record or batch, with the truth beside it; who holds a batch is left out."""
        said = {"member": question.member, "score": self.scores, "decision": self.decisions}
        if question.batches is not None:
            return Records(table="batch-membership", columns={"record": question.records, **said})
        asked = {"record": question.records, "client": question.holder}
        return Records(table="membership", columns=asked | said)

    def _epsilon(self, question: Question) -> Estimate:
        if question.truth.by_user:
            return Estimate(None, None, None, len(self.scores), BY_USER)
        return epsilon_lower_bound(self.scores, question.member, numpy_from(question.rng))

    def _epsilon_at_delta(self, question: Question) -> Estimate:
        if question.truth.by_user:
            return Estimate(None, None, None, len(self.scores), BY_USER)
        family, delta = question.record.family, question.record.delta
        rng = numpy_from(question.rng)
        return one_run_bound(self.scores, question.member, rng, family=family, delta=delta)

    def _roc(self, question: Question) -> Roc:
        fpr, tpr = roc(self.scores, question.member)
        members = int(question.member.sum())
        return Roc(
            fpr=tuple(fpr),
            tpr=tuple(tpr),
            members=members,
            nonmembers=len(question.member) - members,
            unit=1 if question.batches is None else question.batches.shape[1],
        )

    def _risks(self, question: Question) -> Iterator[Risk]:
        """The AUC on each client's members against its own non-members, and on all after each observed round.

        Where the data do not say whose the non-members are, a client's members are set against all of them.
        An attack that knows clients apart is taken at its word about each client that it saw; else the one
        score that it gives a record counts.
        """
        by_client: list[np.ndarray] = []
        names, origin = question.truth.names, question.truth.origin
        if not len(origin):
            origin = question.holder
        if self.by_client is not None:
            check_numbers("scores by client", self.by_client, None, len(question.member))
            by_client = list(self.by_client)
        for client in range(len(question.truth.clients)):
            scores = by_client[client] if client < len(by_client) else self.scores
            outside = ~question.member
            if (own := outside & (origin == client)).any():
                outside = own
            risk = _risk("client", client, scores, question.holder == client, outside, question)
            yield risk.model_copy(update={"name": names[client]}) if client < len(names) else risk
        for number, scores in self.by_round.items():
            check_numbers("scores by round", scores, len(question.member))
            yield _risk("round", number, scores, question.member, ~question.member, question)


def _groups(question: Question) -> np.ndarray:
    """The user or client of each candidate, where whole ones were drawn and records are asked about alone."""
    return NOBODY if question.batches is not None else question.truth.groups


def _judged(estimate: Estimate, question: Question) -> Estimate:
    """Without its interval where whole users or clients were drawn, and records cannot be put to them."""
    if not question.truth.by_user or estimate.value is None or len(_groups(question)):
        return estimate
    why = UNGROUPED if question.batches is None else MIXED
    return replace(estimate, low=None, high=None, note=why)


def _risk(
    kind: Literal["client", "round"],
    index: int,
    scores: np.ndarray,
    inside: np.ndarray,
    outside: np.ndarray,
    question: Question,
) -> Risk:
    compared, groups = inside | outside, _groups(question)
    groups = groups[compared] if len(groups) else groups
    area = _judged(grouped.auc(scores[compared], inside[compared], groups), question)
    return Risk(kind=kind, index=index, value=area.value, low=area.low, high=area.high, n=area.n, chance=0.5)
