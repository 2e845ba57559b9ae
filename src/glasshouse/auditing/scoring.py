"""Scoring evidence against the truth, which only the auditor knows."""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import nn

from glasshouse.attacks.attack import AdversarialExamples, LabelCounts, MembershipScores
from glasshouse.data.images import Images
from glasshouse.learning.evaluate import predict
from glasshouse.measures.estimate import Estimate, mean, proportion
from glasshouse.measures.membership import auc, balanced_accuracy, tpr_at_fpr


@dataclass(frozen=True, eq=False)
class Truth:
    """What the auditor knows: who of the candidates is a member, what each client holds, the final model."""

    candidates: Images
    member: np.ndarray
    client_counts: np.ndarray
    model: nn.Module
    rng: torch.Generator


@dataclass(frozen=True)
class Score:
    """One metric with the score of a blind guess."""

    metric: str
    estimate: Estimate
    chance: float | None


@singledispatch
def score(evidence: Any, truth: Truth) -> list[Score]:
    """How good the evidence is, in one or more metrics."""
    raise TypeError(f"no way to score {type(evidence).__name__}")


@score.register
def _(evidence: MembershipScores, truth: Truth) -> list[Score]:
    return [
        Score("auc", auc(evidence.scores, truth.member), 0.5),
        Score("balanced-accuracy", balanced_accuracy(evidence.decisions, truth.member), 0.5),
        Score("tpr-at-1%-fpr", tpr_at_fpr(evidence.scores, truth.member, 0.01), 0.01),
    ]


@score.register
def _(evidence: LabelCounts, truth: Truth) -> list[Score]:
    """The blind guess gives every class the same count."""
    held = [truth.client_counts[list(counted.clients)].sum(0) for counted in evidence.counted]
    right = [(counted.counts, own) for counted, own in zip(evidence.counted, held)]
    guesses = [overlap(np.full(len(own), own.mean()), own) for own in held]
    exact = sum(bool((counts == own).all()) for counts, own in right)
    return [
        Score(
            "label-overlap",
            mean([overlap(*pair) for pair in right], bounds=(0.0, 1.0)),
            float(np.mean(guesses)),
        ),
        Score("exact-counts", proportion(exact, len(right)), 0.0),
    ]


@score.register
def _(evidence: AdversarialExamples, truth: Truth) -> list[Score]:
    """The blind guess is noise of the same size: a random sign for every pixel."""
    x, y = truth.candidates.x, truth.candidates.y
    signs = torch.randint(0, 2, x.shape, generator=truth.rng) * 2 - 1
    shaken = (x + evidence.eps * signs).clamp(0, 1)
    clean, noisy, attacked = (
        predict(truth.model, images).argmax(1) == y for images in (x, shaken, evidence.x)
    )
    return [
        Score("robust-accuracy", _share(attacked), noisy.double().mean().item()),
        Score("clean-accuracy", _share(clean), None),
    ]


def overlap(counts: np.ndarray, held: np.ndarray) -> float:
    """The share of the labels counted right: 1 minus half the L1 distance over their number."""
    return float(1 - np.abs(counts - held).sum() / (2 * held.sum()))


def _share(right: torch.Tensor) -> Estimate:
    return proportion(int(right.sum()), len(right))
