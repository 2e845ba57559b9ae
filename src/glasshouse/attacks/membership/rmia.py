"""The robust membership inference attack (Zarifzadeh, Liu and Shokri 2024): records against a population.

A record's ratio is the target's probability of its label over the mean probability that reference models give
it. The score is the share of population records, which are no members, whose ratio it exceeds `gamma` times.
"""

from dataclasses import dataclass

import numpy as np
import torch

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import asked, losses, masked_mean, others, threshold_from_shadows
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.shadows import Answers, Shadows
from glasshouse.options import check_number

LEAST = 1e-30


@dataclass(frozen=True, kw_only=True)
class RMIA(ShadowAttack):
    """Ranks a record's gain in probability over shadow models among the gains of a population.

    Without models that saw a record, its mean probability is taken to be ((1 + a) p + (1 - a)) / 2 for p the
    mean over those that did not. The population are the auxiliary images; the threshold is learned on the
    shadow models.
    """

    gamma: float = 2.0
    a: float = 0.3
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "auxiliary", "shadows")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("rmia", "gamma", self.gamma, 1)
        check_number("rmia", "a", self.a, 0, 1)

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(self._shadows(knowledge))
        x, z = shadows.candidates, shadows.auxiliary
        p_x, p_z = label_probabilities(x), label_probabilities(z)
        target_x, target_z = (np.exp(-losses(asked(access, of), of.y)) for of in (candidates, z.images))
        ratios_z = target_z / self.expected(p_z, z.inside)
        scores = dominated(target_x / self.expected(p_x, x.inside), ratios_z, self.gamma)
        known, p_known = (x, p_x) if x.inside.any() else (z, p_z)

        def as_target(k: int) -> np.ndarray:
            rest = others(k, len(shadows))
            ratios = p_known[k] / self.expected(p_known[rest], known.inside[rest])
            population = p_z[k] / self.expected(p_z[rest], z.inside[rest])
            return dominated(ratios, population[~z.inside[k]], self.gamma)

        return MembershipScores(scores, scores >= threshold_from_shadows(known, as_target))

    def expected(self, probabilities: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """The mean probability of each record's label over models with and without it, shape (N,)."""
        without = masked_mean(probabilities, ~inside)
        return np.maximum(((1 + self.a) * without + (1 - self.a)) / 2, LEAST)

    def _shadows(self, knowledge: Knowledge) -> Shadows | None:
        return knowledge.shadows


@dataclass(frozen=True, kw_only=True)
class OnlineRMIA(RMIA):
    """As `rmia`, with shadow models of which half were trained on each record in question."""

    knows = ("candidates", "auxiliary", "online_shadows")

    def expected(self, probabilities: np.ndarray, inside: np.ndarray) -> np.ndarray:
        both = (masked_mean(probabilities, inside) + masked_mean(probabilities, ~inside)) / 2
        return np.where(np.isfinite(both), np.maximum(both, LEAST), super().expected(probabilities, inside))

    def _shadows(self, knowledge: Knowledge) -> Shadows | None:
        return knowledge.online_shadows


def dominated(ratios: np.ndarray, population: np.ndarray, gamma: float) -> np.ndarray:
    """For each ratio, shape (N,), the share of the population's that it exceeds at least `gamma` times.

    Ties are broken by the ratio, with less than a billionth.
    """
    known = np.sort(population[np.isfinite(population)])
    ranks = np.searchsorted(known, ratios / gamma, side="right")
    shares = ranks / max(1, len(known)) + 1e-9 * ratios / (1 + ratios)
    return np.where(np.isfinite(ratios), shares, np.nan)


def label_probabilities(answers: Answers) -> np.ndarray:
    """The probability of each record's label under each shadow, shape (k, N)."""
    every = [losses(answers.log_probabilities(k), answers.images.y) for k in range(len(answers))]
    return np.asarray(np.exp(-np.stack(every)))
