"""Membership from one prediction: the gap baseline and the loss threshold (Yeom et al. 2018)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Attack, Knowledge, MembershipScores
from glasshouse.data.images import Images
from glasshouse.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Gap(Attack):
    """Calls a record a member if the model classifies it correctly; its advantage is the train-test gap."""

    family = "membership"
    needs = (QueryAccess,)
    told = ("candidates",)

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        assert knowledge.candidates is not None
        candidates = knowledge.candidates
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
    told = ("candidates", "auxiliary")

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise BadInput(f"loss-threshold quantile = {self.quantile} is out of range; it lies in (0, 1)")

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        assert knowledge.candidates is not None
        assert knowledge.auxiliary is not None
        losses = cross_entropies(access, knowledge.candidates)
        threshold = cross_entropies(access, knowledge.auxiliary).quantile(self.quantile)
        return MembershipScores(-losses.numpy(), (losses < threshold).numpy())


def cross_entropies(access: QueryAccess, images: Images) -> Tensor:
    """The loss of each image under the model that `access` asks, double of shape (N,)."""
    right = access.probabilities(images.x).double().gather(1, images.y[:, None]).squeeze(1)
    return -right.clamp_min(1e-30).log()
