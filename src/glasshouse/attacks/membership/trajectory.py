"""What the models of a federation know about a record, client by client and round by round.

A server that sees single updates has every client's own model. A record that one client trained on is better
known to its model than to the other clients' models of the same round, which serve as references, as in
FedMIA (Zhu et al. 2024), with two differences that measured better: one is added to the variance of the
Gaussian over the few others, and its z-scores are summed, not its log-likelihoods. A server that sees the sum
has the global models before and after each round.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import AggregateAccess, Protocol, SeenSum, SeenUpdates, UpdateAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.membership.readings import (
    Reading,
    Records,
    check_share,
    mean_update,
    membership,
    seen_rounds,
    single_updates,
)
from glasshouse.attacks.membership.signals import given, log_odds, losses
from glasshouse.errors import CannotRun
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.source import Sources
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import write_vector

REFERENCES = 2
"""With fewer other clients than this in a round, the model that was sent is the reference."""

ADDED_VARIANCE = 1.0
"""Added to that of the log-odds among reference models, of which a few give a poor estimate."""

Ask = Callable[[Tensor], np.ndarray]
"""From a model's state, shape (P,), to its log-probabilities for the records, shape (N, classes)."""


@dataclass(frozen=True, kw_only=True)
class LossTrajectory(Attack):
    """Finds records that a client's own model knows better than the other clients' models of the round do.

    To this claim it adds how well the global model knows the record after the round, the older rounds
    counting less by the factor `memory` for each; a server that sees only sums has this alone. All is
    measured in log-odds of the label against auxiliary records of the same class. The threshold accuses a
    share `quantile` of the auxiliary records.
    """

    quantile: float = 0.5
    memory: float = 0.5
    family = "membership"
    needs = (UpdateAccess, AggregateAccess)
    knows = ("candidates", "auxiliary")

    def __post_init__(self) -> None:
        check_share("loss-trajectory", "quantile", self.quantile)
        check_share("loss-trajectory", "memory", self.memory)

    def run(
        self, access: UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> MembershipScores:
        records = Records.of(knowledge)
        ask = _asking(access.protocol, records.x)

        def odds(vector: Tensor) -> np.ndarray:
            return log_odds(ask(vector), records.y)

        readings = [_read(seen, odds) for seen in seen_rounds(access)]
        return membership(readings, records, memory=self.memory, accused=self.quantile)


@dataclass(frozen=True, kw_only=True)
class SourceInference(Attack):
    """Names the client whose own model knows a record best, on average over the rounds it took part in.

    Plainly that is the lowest loss (Hu et al. 2021); `calibrated`, it is the highest rise of the label's
    log-odds over the model that was sent, which does not favour the clients of the last rounds. A client that
    was never seen is never named.
    """

    calibrated: bool = True
    family = "source"
    needs = (UpdateAccess,)
    knows = ("candidates",)

    def run(self, access: UpdateAccess, knowledge: Knowledge, rng: torch.Generator) -> Sources:
        candidates = given(knowledge.candidates)
        ask = _asking(access.protocol, candidates.x)
        said: dict[int, list[np.ndarray]] = {}
        for seen in seen_rounds(access):
            before = log_odds(ask(seen.sent), candidates.y) if self.calibrated else None
            for update in single_updates(seen):
                after = ask(seen.sent + update.delta)
                known = (
                    -losses(after, candidates.y) if before is None else log_odds(after, candidates.y) - before
                )
                said.setdefault(update.client, []).append(known)
        clients = np.array(sorted(said))
        if len(clients) < 2:
            raise CannotRun("one client was seen, so there is nothing to find out about the source")
        means = np.stack([np.mean(said[client], axis=0) for client in clients.tolist()])
        return Sources(clients[means.argmax(0)])


def claims(own: np.ndarray, sent: np.ndarray | None) -> np.ndarray:
    """How far each client's log-odds, shape (K, N), stand above the others' of the round, as z-scores.

    With too few others they are compared with `sent`, the log-odds under the model sent, shape (N,).
    """
    if sent is not None:
        return np.asarray(own - sent)
    others = [np.delete(own, k, axis=0) for k in range(len(own))]
    spread = [np.sqrt(other.var(0, ddof=1) + ADDED_VARIANCE) for other in others]
    return np.stack([(mine - other.mean(0)) / s for mine, other, s in zip(own, others, spread)])


def _read(seen: SeenUpdates | SeenSum, odds: Ask) -> Reading:
    updates = single_updates(seen)
    level = odds(seen.sent + mean_update(seen))
    if not updates:
        return Reading(seen.number, level, {})
    own = np.stack([odds(seen.sent + update.delta) for update in updates])
    sent = odds(seen.sent) if len(updates) <= REFERENCES else None
    claimed = claims(own, sent)
    return Reading(seen.number, level, {update.client: row for update, row in zip(updates, claimed)})


def _asking(protocol: Protocol, x: Tensor) -> Ask:
    network = laid_out(deepcopy(protocol.architecture))

    def ask(vector: Tensor) -> np.ndarray:
        write_vector(network, vector)
        answers: np.ndarray = predict(network, x).double().log_softmax(1).numpy()
        return answers

    return ask
