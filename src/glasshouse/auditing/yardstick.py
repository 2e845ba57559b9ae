"""The federated model against the central one, image by image: what federation costs in robustness."""

import numpy as np
from torch import Tensor

from glasshouse.attacks.attack import AdversarialExamples, Evidence
from glasshouse.auditing.scoring import Score
from glasshouse.auditing.truth import Truth
from glasshouse.learning.evaluate import predict
from glasshouse.measures.comparing import share_difference

Outcomes = dict[str, str]
"""For `clean` and `robust` a character for each candidate: 1 where the model is right, else 0."""


def outcomes(evidence: Evidence, truth: Truth) -> Outcomes:
    """Which candidates the model gets right without an attack and at the largest eps; of evasion only."""
    if not isinstance(evidence, AdversarialExamples):
        return {}
    images = truth.candidates
    shown = {"clean": images.x, "robust": evidence.x[-1]}
    return {name: _spelled(predict(truth.model, x).argmax(1) == images.y) for name, x in shown.items()}


def over_central(federated: Outcomes, central: Outcomes) -> list[Score]:
    """By how much more of the same images the federated model gets right, attacked and not."""
    kinds = ("robust", "clean")
    return [
        Score(
            f"{kind}-accuracy-over-central",
            share_difference(*map(_read, (federated[kind], central[kind]))),
            None,
        )
        for kind in kinds
    ]


def _spelled(right: Tensor) -> str:
    return "".join("01"[hit] for hit in right.int().tolist())


def _read(spelled: str) -> np.ndarray:
    return np.array([hit == "1" for hit in spelled])
