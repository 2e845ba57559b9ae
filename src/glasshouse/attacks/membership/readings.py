"""What a server reads off the rounds it observed, and how readings become membership scores.

A reading gives each record a level, how much the model of all clients together suggests that it was trained
on, and, where single updates are seen, each client's claim to it. Both depend on the class far more than on
membership: a client rich in a class raises every record of the class. So they are measured against auxiliary
records of the same class, which are no members. What remains is about the record.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import AggregateAccess, Protocol, QueryAccess, SeenSum, SeenUpdates, UpdateAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.errors import CannotRun
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.updates import Update, weighted_sum
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import write_vector
from glasshouse.options import check_share

CLAIM_WEIGHT = 0.5
"""What the strongest client's claim counts beside the level; a half did better than all or nothing."""

COMMON = 5
"""How many records' worth of the spread over all classes goes into that of a class."""


@dataclass(frozen=True, eq=False)
class Reading:
    """One round: the `level` of each record, shape (N,), and each client's claim to it, shape (N,)."""

    number: int
    level: np.ndarray
    claims: dict[int, np.ndarray]


Reader = Callable[[Tensor, Sequence[Tensor]], np.ndarray]
"""From the model sent, and the mean and all single updates seen, to the level and each client's claim."""


@dataclass(frozen=True, eq=False)
class Records:
    """The `asked` candidates and, after them, the auxiliary records: x (N, C, H, W) and y (N,)."""

    x: Tensor
    y: Tensor
    asked: int

    @classmethod
    def of(cls, knowledge: Knowledge) -> "Records":
        """The records that an attack knows."""
        candidates, auxiliary = required(knowledge.candidates), required(knowledge.auxiliary)
        x, y = torch.cat([candidates.x, auxiliary.x]), torch.cat([candidates.y, auxiliary.y])
        return cls(x, y, len(candidates))

    def standardised(self, values: np.ndarray) -> np.ndarray:
        """`values`, shape (N,), less the auxiliary mean of the record's class, over the auxiliary spread.

        An auxiliary record is compared with the others of its class. A class with fewer than two has the mean
        of all classes.
        """
        labels, auxiliary = self.y.numpy(), slice(self.asked, None)
        known, label = values[auxiliary], labels[auxiliary]
        classes = int(labels.max()) + 1
        count = np.bincount(label, minlength=classes)
        enough = count >= 2
        mean = np.where(enough, np.bincount(label, known, classes) / count.clip(1), known.mean())
        distance = values - mean[labels]
        squares = np.bincount(label, distance[auxiliary] ** 2, classes)
        common = squares.sum() / max(len(label) - int(enough.sum()), 1)
        spread = np.sqrt((squares + COMMON * common) / ((count - 1).clip(0) + COMMON)).clip(1e-12)
        distance[auxiliary] *= np.where(enough, count / (count - 1).clip(1), 1.0)[label]
        return np.asarray(distance / spread[labels])


class ServerMembership(Attack):
    """Reads every observed round, and judges the candidates by all readings together.

    It accuses those who score above all but a share `quantile` of the auxiliary records. Levels of a round
    count less by the factor `memory` than those of the round after it.
    """

    name: ClassVar[str]
    family = "membership"
    needs = (UpdateAccess, AggregateAccess)
    knows = ("candidates", "auxiliary")
    quantile: float
    memory: float = 1.0

    def __post_init__(self) -> None:
        check_share(self.name, "quantile", self.quantile)

    def run(
        self, access: UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> MembershipScores:
        records = Records.of(knowledge)
        read = self.reader(access.protocol, records)
        readings = []
        for seen in seen_rounds(access):
            updates = single_updates(seen)
            level, *claims = read(seen.sent, [mean_update(seen), *(update.delta for update in updates)])
            by_client = {update.client: claim for update, claim in zip(updates, claims)}
            readings.append(Reading(seen.number, level, by_client))
        return membership(readings, records, memory=self.memory, accused=self.quantile)

    @abstractmethod
    def reader(self, protocol: Protocol, records: Records) -> Reader:
        """How to read a round of this protocol."""


def seen_rounds(access: UpdateAccess | AggregateAccess) -> Sequence[SeenUpdates | SeenSum]:
    """The rounds in which something was seen, or `CannotRun` where there are none."""
    rounds = [seen for seen in access.rounds if isinstance(seen, SeenSum) or seen.updates]
    if not rounds:
        raise CannotRun("the server observed no round")
    return rounds


def single_updates(seen: SeenUpdates | SeenSum) -> tuple[Update, ...]:
    """The updates seen one by one."""
    return seen.updates if isinstance(seen, SeenUpdates) else ()


def mean_update(seen: SeenUpdates | SeenSum) -> Tensor:
    """The clients' mean update, weighted by their sizes, shape (P,)."""
    if isinstance(seen, SeenSum):
        return seen.mean
    return weighted_sum(seen.updates, sum(update.samples for update in seen.updates))


def as_outsider(access: QueryAccess | UpdateAccess | AggregateAccess) -> QueryAccess:
    """Access by queries; a server answers them with the last global model that it saw."""
    if isinstance(access, QueryAccess):
        return access
    last = seen_rounds(access)[-1]
    network = laid_out(deepcopy(access.protocol.architecture))
    write_vector(network, last.sent + mean_update(last))
    return QueryAccess(lambda x: predict(network, x).double().softmax(1))


def membership(
    readings: Sequence[Reading], records: Records, *, memory: float, accused: float
) -> MembershipScores:
    """Scores for the candidates: their standard level, plus a half of their strongest standard claim.

    Levels are averaged with weights that fall by the factor `memory` from each round to the one before;
    claims are summed. Accused are those who score above all but the share `accused` of the auxiliary records.
    A row of `by_client` is that client's standard claim, or the scores for a client that was never seen.
    """
    asked = slice(records.asked)
    scores, claims = _scores(readings, records, memory)
    threshold = np.quantile(scores[records.asked :], 1 - accused)
    by_client = [claims.get(k, scores)[asked] for k in range(max(claims, default=-1) + 1)]
    by_round = {
        reading.number: _scores(readings[: so_far + 1], records, memory)[0][asked]
        for so_far, reading in enumerate(readings)
    }
    stacked = np.stack(by_client) if by_client else None
    return MembershipScores(scores[asked], scores[asked] > threshold, stacked, by_round)


def _scores(
    readings: Sequence[Reading], records: Records, memory: float
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """The scores of candidates and auxiliary records, and each client's standard claims to them."""
    weights = memory ** np.arange(len(readings))[::-1]
    level = sum(weight * reading.level for weight, reading in zip(weights, readings))
    scores = records.standardised(np.asarray(level))
    clients = sorted({client for reading in readings for client in reading.claims})
    claims = {
        client: records.standardised(
            np.sum([reading.claims[client] for reading in readings if client in reading.claims], axis=0)
        )
        for client in clients
    }
    if claims:
        strongest = np.max(list(claims.values()), axis=0)
        scores = scores + CLAIM_WEIGHT * records.standardised(strongest)
    return scores, claims
