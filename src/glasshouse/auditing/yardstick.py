"""The federated model against the central one, image by image: what federation costs in robustness."""

from typing import Any

import numpy as np
from torch import Tensor

from glasshouse.auditing.scoring import Score
from glasshouse.auditing.truth import Truth
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.evidence.evidence import Evidence
from glasshouse.learning.evaluate import hits, predict
from glasshouse.measures.comparing import share_difference
from glasshouse.measures.estimate import Estimate

Outcomes = dict[str, str]
"""For each eps, 0 for no attack, a character for each candidate: 1 where the model is right, else 0."""


def outcomes(evidence: Evidence, truth: Truth) -> Outcomes:
    """Which candidates the model gets right within each limit; of evasion attacks only."""
    if not isinstance(evidence, AdversarialExamples):
        return {}
    right = {0.0: hits(truth.model, truth.candidates)}
    for eps, x in zip(evidence.eps, evidence.x):
        if eps > 0:
            right[eps] = predict(truth.model, x).argmax(1) == truth.candidates.y
    return {str(eps): _spelled(own) for eps, own in right.items()}


def over_central(federated: Outcomes, central: Outcomes) -> list[Score]:
    """By how much more of the same images the federated model gets right, at the largest eps and at none."""
    apart = _apart(federated, central)
    named = {"robust": max(apart), "clean": 0.0}
    return [Score(f"{name}-accuracy-over-central", apart[eps], None) for name, eps in named.items()]


def over_central_by_eps(federated: Outcomes, central: Outcomes) -> dict[float, dict[str, Any]]:
    """The same for each eps, as entries of its point on the curve."""
    return {
        eps: {"difference": own.value, "difference_low": own.low, "difference_high": own.high}
        for eps, own in _apart(federated, central).items()
    }


def _apart(federated: Outcomes, central: Outcomes) -> dict[float, Estimate]:
    return {float(eps): share_difference(_read(federated[eps]), _read(central[eps])) for eps in federated}


def _spelled(right: Tensor) -> str:
    return "".join("01"[hit] for hit in right.int().tolist())


def _read(spelled: str) -> np.ndarray:
    return np.array([hit == "1" for hit in spelled])
