"""Membership of whole batches without an attack model: what any attack that learns from batches must beat.

Each batch was trained on, whole or for a `fraction`, or not at all. The attacks score single records and take
the mean over a batch; what they need to know of members and others, they learn from shadow models.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.membership.lira import offline_scores
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import asked, best_threshold, check_enough, losses, others
from glasshouse.evidence.batches import check_batches, compose
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.shadows import Answers, log_odds
from glasshouse.learning.seeds import numpy_from

Weigh = Callable[[np.ndarray], np.ndarray]
Sides = tuple[np.ndarray, np.ndarray]
"""The signals of records that a shadow was trained on, and of those kept for its test."""


@dataclass(frozen=True, kw_only=True)
class SetAttack(ShadowAttack):
    """Judges batches by the mean score of their records."""

    batch_size: int = 32
    fraction: float = 1.0
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "shadows")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_batches("a set attack's", self.batch_size, self.fraction)

    @property
    def query_unit(self) -> int:
        return self.batch_size

    @property
    def member_share(self) -> float:
        return self.fraction

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.shadows)
        known = shadows.auxiliary
        check_enough(len(known))
        sides: list[Sides] = []
        for k in range(len(known)):
            signal = self.signal(known.log_probabilities(k), known, others(k, len(known)))
            fair = np.isfinite(signal)
            sides.append((signal[known.inside[k] & fair], signal[known.tested[k] & fair]))
        weigh = self.weigh(*(np.concatenate(side) for side in zip(*sides)))
        records = weigh(self.signal(asked(access, candidates), shadows.candidates, np.arange(len(shadows))))
        scores = records[required(knowledge.batches)].mean(1) if self.batch_size > 1 else records
        return MembershipScores(scores, scores >= self.threshold(sides, weigh, rng))

    @abstractmethod
    def signal(self, log_probabilities: np.ndarray, records: Answers, models: np.ndarray) -> np.ndarray:
        """A number for each record, shape (N,), from one model's answers and those of some shadows."""

    def weigh(self, inside: np.ndarray, outside: np.ndarray) -> Weigh:
        """From signals to scores, given the signals of known members and non-members."""
        return lambda signals: signals

    def threshold(self, sides: list[Sides], weigh: Weigh, rng: torch.Generator) -> float:
        """The score from which a batch is called a member: the best on batches of the shadow models."""
        numpy_rng = numpy_from(rng)
        scores, member = [], []
        for inside, outside in sides:
            pool = weigh(np.concatenate([inside, outside]))
            seen, unseen = np.split(np.arange(len(pool)), [len(inside)])
            composed = compose(seen, unseen, self.batch_size, self.fraction, numpy_rng)
            for batches, label in zip(composed, (True, False)):
                scores.append(pool[batches].mean(1))
                member.append(np.full(len(batches), label))
        return best_threshold(np.concatenate(scores), np.concatenate(member))


class SetLoss(SetAttack):
    """Calls a batch a member if its mean loss is low."""

    def signal(self, log_probabilities: np.ndarray, records: Answers, models: np.ndarray) -> np.ndarray:
        return -losses(log_probabilities, records.images.y)


class SetVote(SetLoss):
    """Calls a batch a member if at least half of its records have a loss below a threshold."""

    def weigh(self, inside: np.ndarray, outside: np.ndarray) -> Weigh:
        member = np.repeat([True, False], [len(inside), len(outside)])
        line = best_threshold(np.concatenate([inside, outside]), member)
        return lambda signals: (signals >= line).astype(float)

    def threshold(self, sides: list[Sides], weigh: Weigh, rng: torch.Generator) -> float:
        return 0.5


class SetLLR(SetAttack):
    """Sums the log-likelihood ratios of a batch's records, each calibrated by shadow models without it.

    The signal is LiRA's offline score. Its distributions for members and others are Gaussians, learned on the
    auxiliary images, of one variance, so that a record that fits neither cannot pass for a member.
    """

    def signal(self, log_probabilities: np.ndarray, records: Answers, models: np.ndarray) -> np.ndarray:
        observed = log_odds(log_probabilities, records.images.y)
        return offline_scores(observed, records.log_odds[models], ~records.inside[models], fixed=True)

    def weigh(self, inside: np.ndarray, outside: np.ndarray) -> Weigh:
        variance = (inside.var() * len(inside) + outside.var() * len(outside)) / (len(inside) + len(outside))
        shift, middle = inside.mean() - outside.mean(), (inside.mean() + outside.mean()) / 2
        return lambda signals: shift / max(variance, 1e-12) * (signals - middle)
