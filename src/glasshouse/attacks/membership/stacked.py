"""Scores of several membership attacks as one, weighed by what they say of the shadow models' own records.

Each shadow model in turn plays a target whose members are known, and the others are its shadow models. A
logistic model learns there how much each score says; of the target's members nothing is known to it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import RobustScaler

from glasshouse.access import AggregateAccess, QueryAccess, UpdateAccess
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.membership import bavaria, lira
from glasshouse.attacks.membership.readings import as_outsider
from glasshouse.attacks.membership.rmia import RMIA, dominated, label_probabilities
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import asked, check_enough, losses, others
from glasshouse.errors import CannotRun
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.shadows import Answers, log_odds
from glasshouse.options import check_number

STACKED = ("gap", "loss", "log-odds", "lira", "rmia", "bavaria")
"""The scores that are weighed."""


@dataclass(frozen=True, kw_only=True)
class Stacked(ShadowAttack):
    """Weighs the scores of gap, loss, lira, rmia and bavaria as the shadow models teach it to.

    The weights are those of a logistic regression with an L2 penalty of 1 / (2 `c`). A server asks the last
    global model that it saw.
    """

    c: float = 0.01
    family = "membership"
    needs = (QueryAccess, UpdateAccess, AggregateAccess)
    knows = ("candidates", "auxiliary", "shadows")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("stacked", "c", self.c, 0, open_low=True)

    def run(
        self, access: QueryAccess | UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.shadows)
        known = shadows.auxiliary
        check_enough(len(known))
        weighed = Weighing.learned(known, self.c)
        target = as_outsider(access)
        about = asked(target, candidates)
        population = asked(target, known.images)
        scores = weighed.log_odds(
            signals(
                about,
                shadows.candidates,
                known,
                np.arange(len(known)),
                population,
                np.ones(len(known.images), bool),
            )
        )
        return MembershipScores(scores, scores > 0)


@dataclass(frozen=True, eq=False)
class Weighing:
    """Several scores for each record, brought to one scale and weighed."""

    scaler: RobustScaler
    model: LogisticRegression

    @classmethod
    def learned(cls, known: Answers, c: float) -> "Weighing":
        """The weights that tell the shadow models' members from others best."""
        every, member = [], []
        for k in range(len(known)):
            answers = known.log_probabilities(k)
            found = signals(answers, known, known, others(k, len(known)), answers, ~known.inside[k])
            fair = np.isfinite(found).all(1)
            every.append(found[fair])
            member.append(known.inside[k][fair])
        features, inside = np.concatenate(every), np.concatenate(member)
        if inside.all() or not inside.any():
            raise CannotRun("the shadow models have no records, or all of them, in training")
        scaler = RobustScaler().fit(features)
        model = LogisticRegression(C=c, class_weight="balanced", max_iter=1000)
        return cls(scaler, model.fit(_compressed(scaler, features), inside))

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        """The log-odds of membership, shape (N,), of records with these scores, shape (N, d)."""
        odds: np.ndarray = self.model.decision_function(_compressed(self.scaler, features))
        return odds


def _compressed(scaler: RobustScaler, features: np.ndarray) -> np.ndarray:
    """Scores of which the far ones count by their logarithm: a single one must not outweigh the rest."""
    return np.asarray(np.arcsinh(scaler.transform(features)))


def signals(
    answers: np.ndarray,
    records: Answers,
    known: Answers,
    models: np.ndarray,
    population: np.ndarray,
    among: np.ndarray,
) -> np.ndarray:
    """The scores that make up `STACKED` for each of `records`, shape (N, 6).

    `answers`, shape (N, classes), are those of the target, and `population` those about the images of
    `known`, of which those in the mask `among` are no members; shadow `models` are compared with.
    """
    y = records.images.y
    observed, loss = log_odds(answers, y), losses(answers, y)
    outside = ~records.inside[models]
    rmia = RMIA()
    ratios = np.exp(-loss) / rmia.expected(label_probabilities(records)[models], ~outside)
    gains = np.exp(-losses(population, known.images.y)) / rmia.expected(
        label_probabilities(known)[models], known.inside[models]
    )
    return np.stack(
        [
            answers.argmax(1) == y.numpy(),
            -loss,
            observed,
            lira.offline_scores(observed, records.log_odds[models], outside, fixed=True),
            dominated(ratios, gains[among], rmia.gamma),
            bavaria.offline_scores(observed, records, known, models),
        ],
        axis=1,
    ).astype(np.float64)
