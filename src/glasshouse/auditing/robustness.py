"""How much a model still gets right when its images are changed, against how far they are."""

from typing import Any

from torch import Tensor

from glasshouse.auditing.truth import Truth
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball, Norm, rim
from glasshouse.learning.evaluate import hits, predict
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.estimate import proportion


def curve(evidence: AdversarialExamples, truth: Truth) -> list[dict[str, Any]]:
    """An entry for each limit, from no change at all: the accuracy it leaves.

    `value` lies between `low` and `high` (95%); `chance` is what noise of the same size leaves; `n` images.
    """
    clean = hits(truth.model, truth.candidates)
    entries = [_entry(0.0, clean, clean.double().mean().item())]
    for eps, x in zip(evidence.eps, evidence.x):
        if eps > 0:
            right = predict(truth.model, x).argmax(1) == truth.candidates.y
            entries.append(_entry(eps, right, noisy_accuracy(truth, eps, evidence.norm)))
    return entries


def noisy_accuracy(truth: Truth, eps: float, norm: Norm) -> float:
    """The accuracy that noise of size `eps` leaves: a blind guess at what an attack does.

    "linf": every pixel moves by eps, up or down; "l2": each image moves by eps in a random direction.
    """
    images = truth.candidates
    # The same noise for every limit and attack, so that their rows can be compared.
    rng = torch_rng(0, "noise")
    shaken = Ball(images.x, eps, norm).at(rim(images.x.shape, norm, rng))
    return (predict(truth.model, shaken).argmax(1) == images.y).double().mean().item()


def _entry(eps: float, right: Tensor, chance: float) -> dict[str, Any]:
    return proportion(int(right.sum()), len(right)).entries() | {"eps": eps, "chance": chance}
