"""The first membership attack on black boxes (Shokri et al. 2017): an attack model for each class."""

from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.membership.classifier import Classifier, Kind, balanced
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import asked
from glasshouse.errors import CannotRun
from glasshouse.evidence.membership import MembershipScores
from glasshouse.learning.seeds import numpy_from
from glasshouse.options import check_choice

FEWEST = 10


@dataclass(frozen=True, kw_only=True)
class Shokri(ShadowAttack):
    """Trains an attack model for each class on the confidences of shadow models.

    A class with fewer than ten records on either side is judged by a model for all classes together.
    """

    classifier: Kind = "network"
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "shadows")
    fewest_shadows = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("shokri", "classifier", self.classifier, get_args(Kind))

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.shadows)
        answers = shadows.auxiliary
        numpy_rng = numpy_from(rng)
        every = np.concatenate([np.exp(answers.log_probabilities(k)) for k in range(len(answers))])
        y = np.tile(answers.images.y.numpy(), len(answers))
        inside, outside = answers.inside.ravel(), answers.tested.ravel()
        if not inside.any() or not outside.any():
            raise CannotRun("the shadow models have no training or no test set of their own")

        def attack_model(among: np.ndarray) -> Classifier:
            data = balanced(every[inside & among], every[outside & among], numpy_rng)
            return Classifier(self.classifier, *data, rng)

        confidences, labels = np.exp(asked(access, candidates)), candidates.y.numpy()
        scores = np.empty(len(labels))
        for label in np.unique(labels):
            among = y == label
            enough = min((inside & among).sum(), (outside & among).sum()) >= FEWEST
            model = attack_model(among if enough else np.ones_like(among))
            scores[labels == label] = model.log_odds(confidences[labels == label])
        return MembershipScores(scores, scores > 0)
