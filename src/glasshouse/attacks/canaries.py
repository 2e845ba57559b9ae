"""Canaries that an audit inserts into a training of their own, to bound from below what one unit spends."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from glasshouse.access import Access, AggregateAccess, QueryAccess, UpdateAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.attacks.membership.signals import asked, losses
from glasshouse.evidence.canaries import CanaryClientScores, CanaryRecordScores
from glasshouse.options import check_choice, check_whole


class CanaryAttack(Attack):
    """An attack on a training into which canaries are inserted first, for the privacy of one `unit`."""

    unit: ClassVar[Literal["record", "client"]]
    canaries: int


@dataclass(frozen=True, kw_only=True)
class CanaryRecords(CanaryAttack):
    """Puts `canaries` wrong records in the place of clients' own, and tells from the loss their labels.

    At most half of a client's records give way. A canary is a "random" image, or the "mislabelled" one that
    gives way, with one of two wrong labels that a fair coin chooses. Sizes and the promised privacy stay.
    """

    canaries: int = 1000
    images: Literal["random", "mislabelled"] = "random"
    family = "canary-records"
    needs = (QueryAccess,)
    knows = ("candidates",)
    unit = "record"

    def __post_init__(self) -> None:
        check_whole("canary-records", "canaries", self.canaries, 1, 10**6)
        check_choice("canary-records", "images", self.images, ("random", "mislabelled"))

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> CanaryRecordScores:
        candidates = required(knowledge.candidates)
        return CanaryRecordScores(-losses(asked(access, candidates), candidates.y))


@dataclass(frozen=True, kw_only=True)
class CanaryClients(CanaryAttack):
    """Adds `canaries` clients that send random directions, and finds their signs in the sums of the rounds.

    Each direction has the length to which updates are clipped, and a sign that a fair coin chooses (after
    Andrew et al. 2023, whose canaries take part or do not).
    """

    canaries: int = 400
    family = "canary-clients"
    needs: ClassVar[tuple[type[Access], ...]] = (AggregateAccess,)
    knows = ("directions",)
    unit = "client"
    called: ClassVar[str] = "canary-clients"

    def __post_init__(self) -> None:
        check_whole(self.called, "canaries", self.canaries, 1, 10**5)

    def run(self, access: Access, knowledge: Knowledge, rng: torch.Generator) -> CanaryClientScores:
        assert isinstance(access, AggregateAccess)
        directions = required(knowledge.directions)
        total = torch.stack([seen.mean[: directions.trainable].double() for seen in access.rounds]).sum(0)
        total /= total.norm().clamp_min(1e-30)
        cosines = [float(directions[canary].double() @ total) for canary in range(len(directions))]
        return CanaryClientScores(np.array(cosines), directions.trainable)


@dataclass(frozen=True, kw_only=True)
class CanaryUpdates(CanaryClients):
    """Adds the clients of `canary-clients`, and finds each one's sign in the updates that it sent itself.

    That is what a server can that sees single updates, against which noise that clients add must protect.
    """

    canaries: int = 200
    needs = (UpdateAccess,)
    called = "canary-updates"

    def run(self, access: Access, knowledge: Knowledge, rng: torch.Generator) -> CanaryClientScores:
        assert isinstance(access, UpdateAccess)
        directions = required(knowledge.directions)
        totals = torch.zeros(len(directions), directions.trainable, dtype=torch.float64)
        for seen in access.rounds:
            for update in seen.updates:
                if update.client >= directions.first:
                    totals[update.client - directions.first] += update.delta[: directions.trainable].double()
        totals /= totals.norm(dim=1, keepdim=True).clamp_min(1e-30)
        cosines = [float(directions[canary].double() @ total) for canary, total in enumerate(totals)]
        return CanaryClientScores(np.array(cosines), directions.trainable)
