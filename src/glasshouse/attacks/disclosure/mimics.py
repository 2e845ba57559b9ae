"""Membership from samples that a server sends along: does it send what lies near the training records?"""

from dataclasses import dataclass

import numpy as np
import torch

from glasshouse.access import PayloadAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.attacks.disclosure.samples import Samples, received
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.nearness import Nearness


@dataclass(frozen=True, kw_only=True)
class MimicDistance(Attack):
    """Calls a record a member if it lies near a sample that the server sent beside the model.

    Scores are negative distances to the nearest sample of all observed rounds: of pixels where the samples
    are images, else of the inputs of the model's last layer. It accuses the nearer half of the records, as it
    has nothing to set a threshold by.
    """

    family = "membership"
    needs = (PayloadAccess,)
    knows = ("candidates",)

    def run(self, access: PayloadAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        x = required(knowledge.candidates).x
        nearest = [_nearest(samples, samples.distances(x)) for samples in received(access, rng)]
        scores = -np.min(nearest, axis=0)
        return MembershipScores(scores, scores > np.median(scores))


@dataclass(frozen=True, kw_only=True)
class MimicNeighbours(Attack):
    """Looks for the record that is nearest to each sample which the server sent beside the model.

    Samples of one round are all made from one model, and those of the next from nearly the same; it looks at
    the last observed round that has any.
    """

    family = "disclosure"
    needs = (PayloadAccess,)
    knows = ("candidates",)

    def run(self, access: PayloadAccess, knowledge: Knowledge, rng: torch.Generator) -> Nearness:
        last = received(access, rng)[-1]
        return Nearness(last.distances(required(knowledge.candidates).x))


def _nearest(samples: Samples, distances: np.ndarray) -> np.ndarray:
    """Each record's distance to the nearest sample, shape (N,), comparable between rounds.

    Features grow while a network learns, so they are measured by their median.
    """
    nearest: np.ndarray = distances.min(0)
    return nearest if samples.pixels else nearest / max(float(np.median(nearest)), 1e-12)
