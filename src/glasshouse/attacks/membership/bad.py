"""MIA-BAD (Banerjee et al. 2023): the attack model is trained on the answers about whole batches.

The paper and its code use batches differently, so there are three protocols. In `sample-sample` the attack
model learns from single records and judges single records. In `batch-sample` it learns from batch means and
judges single records, as its authors' code did. In `batch-batch` it learns from batch means and judges
batches, each of which was trained on whole or not at all, as their Algorithm 1 reads.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.membership.classifier import Classifier, Kind, balanced
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import asked, losses
from glasshouse.data.images import Images
from glasshouse.evidence.batches import check_batches, compose
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.shadows import Answers
from glasshouse.learning.seeds import numpy_from
from glasshouse.options import check_choice

Features = Literal["loss", "confidences"]
Batching = Literal["sample-sample", "batch-sample", "batch-batch"]


@dataclass(frozen=True, kw_only=True)
class MIABad(ShadowAttack):
    """Trains an attack model on what shadow models say about batches they saw and batches they did not.

    Features are the `loss`, or the `confidences` sorted from the highest; the `classifier` is the paper's
    small `network`, or `logistic` regression. `fraction` is the share of members in a batch of `batch-batch`.
    """

    batch_size: int = 32
    protocol: Batching = "batch-sample"
    features: Features = "loss"
    classifier: Kind = "network"
    fraction: float = 1.0
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "shadows")
    fewest_shadows = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, kinds in (("protocol", Batching), ("features", Features), ("classifier", Kind)):
            check_choice("mia-bad", option, getattr(self, option), get_args(kinds))
        check_batches("mia-bad", self.batch_size, self.fraction)

    @property
    def query_unit(self) -> int:
        return self.batch_size if self.protocol == "batch-batch" else 1

    @property
    def member_share(self) -> float:
        return self.fraction

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.shadows)
        inside, outside = self._attack_set(shadows.auxiliary, rng)
        numpy_rng = numpy_from(rng)
        attack_model = Classifier(self.classifier, *balanced(inside, outside, numpy_rng), rng)
        questions = features(asked(access, candidates), candidates, self.features)
        if self.query_unit > 1:
            questions = questions[required(knowledge.batches)].mean(1)
        scores = attack_model.log_odds(questions)
        return MembershipScores(scores, scores > 0)

    def _attack_set(self, answers: Answers, rng: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The features of what shadow models saw, and of what they did not: single records or batch means."""
        size = 1 if self.protocol == "sample-sample" else self.batch_size
        share = self.fraction if self.protocol == "batch-batch" else 1.0
        numpy_rng = numpy_from(rng)
        pairs = []
        for k in range(len(answers)):
            values = features(answers.log_probabilities(k), answers.images, self.features)
            seen, unseen = np.flatnonzero(answers.inside[k]), np.flatnonzero(answers.tested[k])
            chosen = compose(seen, unseen, size, share, numpy_rng)
            pairs.append(tuple(values[batches].mean(1) for batches in chosen))
        inside, outside = (np.concatenate(side) for side in zip(*pairs))
        return inside, outside


def features(log_probabilities: np.ndarray, images: Images, kind: Features) -> np.ndarray:
    """The features of each record, shape (N, d): its loss, or its confidences from the highest down."""
    if kind == "loss":
        return losses(log_probabilities, images.y)[:, None]
    return np.asarray(np.exp(-np.sort(-log_probabilities, axis=1)))
