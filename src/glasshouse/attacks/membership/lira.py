"""The likelihood-ratio attack (Carlini et al. 2022): does the target answer like models that saw the record?

The log-odds phi of a record's label are close to Gaussian over models. Online, shadows trained with and
without the record give both Gaussians and the score is their log-ratio. Offline, only models without it are
there, and the score is how many of their standard deviations the target lies above their mean: the one-sided
test 1 - Pr[Z > phi] = Phi(score).
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from glasshouse.access import AggregateAccess, QueryAccess, UpdateAccess
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.membership.readings import as_outsider
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import (
    asked,
    check_enough,
    masked_mean,
    others,
    threshold_from_shadows,
)
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.shadows import log_odds
from glasshouse.options import check_flag

ENOUGH = 64
"""From this many shadows on a record has a variance of its own, as the authors advise."""
NARROWEST = 1e-6


@dataclass(frozen=True, kw_only=True)
class LiRA(ShadowAttack):
    """Compares the target's confidence in a record with that of shadow models which never saw it.

    A server asks the last global model that it saw. One variance for all records where `fixed_variance`; left
    open, with fewer than 64 shadow models. The threshold of its decisions is learned on the shadow models.
    """

    fixed_variance: bool | None = None
    family = "membership"
    needs = (QueryAccess, UpdateAccess, AggregateAccess)
    knows = ("candidates", "shadows")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_variance("lira", self.fixed_variance)

    def run(
        self, access: QueryAccess | UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.shadows)
        fixed = len(shadows) < ENOUGH if self.fixed_variance is None else self.fixed_variance
        auxiliary, inside = shadows.auxiliary.log_odds, shadows.auxiliary.inside

        def as_target(k: int) -> np.ndarray:
            rest = others(k, len(shadows))
            return offline_scores(auxiliary[k], auxiliary[rest], ~inside[rest], fixed)

        threshold = threshold_from_shadows(shadows.auxiliary, as_target)
        observed = log_odds(asked(as_outsider(access), candidates), candidates.y)
        known = shadows.candidates
        scores = offline_scores(observed, known.log_odds, ~known.inside, fixed)
        return MembershipScores(scores, scores >= threshold)


@dataclass(frozen=True, kw_only=True)
class OnlineLiRA(ShadowAttack):
    """Weighs the likelihood of the target's confidence in a record with the record in training and without.

    Half of its shadow models are trained on each record in question.
    """

    fixed_variance: bool | None = None
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "online_shadows")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_variance("lira-online", self.fixed_variance)

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.online_shadows)
        check_enough(len(shadows))  # two with each record, two without
        fixed = len(shadows) < ENOUGH if self.fixed_variance is None else self.fixed_variance
        observed = log_odds(asked(access, candidates), candidates.y)
        scores = online_scores(observed, shadows.candidates.log_odds, shadows.candidates.inside, fixed)
        return MembershipScores(scores, scores > 0)


def offline_scores(observed: np.ndarray, phi: np.ndarray, outside: np.ndarray, fixed: bool) -> np.ndarray:
    """Standard deviations by which `observed`, (N,), exceeds the mean of the models outside; NaN below two.

    `phi` and the mask `outside` have shape (k, N).
    """
    mean, deviation = gaussian(phi, outside, fixed)
    return np.asarray((observed - mean) / deviation)


def online_scores(observed: np.ndarray, phi: np.ndarray, inside: np.ndarray, fixed: bool) -> np.ndarray:
    """Log-likelihood ratio of `observed`, shape (N,), between the models inside and those outside."""
    ratio: np.ndarray = stats.norm.logpdf(observed, *gaussian(phi, inside, fixed))
    ratio -= stats.norm.logpdf(observed, *gaussian(phi, ~inside, fixed))
    return ratio


def gaussian(phi: np.ndarray, mask: np.ndarray, fixed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the models in the mask, each of shape (N,); NaN below two models."""
    count = mask.sum(0)
    known = count > 1
    mean = np.where(known, masked_mean(phi, mask), np.nan)
    squares = (np.where(mask, phi - mean, 0.0) ** 2).sum(0)
    if fixed:
        variance = np.full(len(mean), squares[known].sum() / max(1, (count - 1)[known].sum()))
    else:
        variance = squares / np.maximum(1, count - 1)
    return mean, np.maximum(np.sqrt(variance), NARROWEST)


def _check_variance(name: str, fixed: bool | None) -> None:
    if fixed is not None:
        check_flag(name, "fixed_variance", fixed)
