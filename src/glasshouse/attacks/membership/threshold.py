"""Membership from one prediction: the gap baseline and the loss threshold (Yeom et al. 2018)."""

from dataclasses import dataclass

import numpy as np
import torch

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.attacks.membership.signals import asked, losses
from glasshouse.evidence.membership import MembershipScores
from glasshouse.options import check_share


@dataclass(frozen=True, kw_only=True)
class Gap(Attack):
    """Calls a record a member if the model classifies it correctly; its advantage is the train-test gap."""

    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates",)

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates = required(knowledge.candidates)
        correct = access.probabilities(candidates.x).argmax(1) == candidates.y
        return MembershipScores(correct.double().numpy(), correct.numpy())


@dataclass(frozen=True, kw_only=True)
class LossThreshold(Attack):
    """Calls a record a member if its loss is below a threshold; scores are negative losses.

    The threshold is the `quantile` of the losses of auxiliary records, which are no members: one half means
    that half of the non-members are accused.
    """

    quantile: float = 0.5
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "auxiliary")

    def __post_init__(self) -> None:
        check_share("loss-threshold", "quantile", self.quantile)

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates, auxiliary = required(knowledge.candidates), required(knowledge.auxiliary)
        scores, known = (-losses(asked(access, images), images.y) for images in (candidates, auxiliary))
        return MembershipScores(scores, scores > np.quantile(known, 1 - self.quantile))
