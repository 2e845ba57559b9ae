"""What the models of a federation know about a record, client by client and round by round.

A server that sees single updates has every client's own model. A record that one client trained on is better
known to its model than to the other clients' models of the same round, which serve as references, as in
FedMIA (Zhu et al. 2024), with two differences that measured better: one is added to the variance of the
Gaussian over the few others, and its z-scores are summed, not its log-likelihoods. A server that sees the sum
has the global models before and after each round.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import Protocol, UpdateAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.attacks.membership.readings import (
    Reader,
    Records,
    ServerMembership,
    seen_rounds,
    single_updates,
)
from glasshouse.attacks.membership.signals import losses
from glasshouse.errors import CannotRun
from glasshouse.evidence.source import Sources
from glasshouse.federation.shadows import log_odds
from glasshouse.federation.updates import Update
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import write_vector
from glasshouse.options import check_flag, check_share

REFERENCES = 2
"""With fewer other clients than this in a round, the model that was sent is the reference."""

ADDED_VARIANCE = 1.0
"""Added to that of the log-odds among reference models, of which a few give a poor estimate."""

Ask = Callable[[Tensor], np.ndarray]
"""From a model's state, shape (P,), to its log-probabilities for the records, shape (N, classes)."""


@dataclass(frozen=True, kw_only=True)
class LossTrajectory(ServerMembership):
    """Finds records that a client's own model knows better than the other clients' models of the round do.

    To this claim it adds how well the global model knows the record after the round, the older rounds
    counting less by the factor `memory` for each; a server that sees only sums has this alone. Both are
    measured in log-odds of the label against auxiliary records of the same class. The threshold accuses a
    share `quantile` of the auxiliary records.
    """

    name = "loss-trajectory"
    quantile: float = 0.5
    memory: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "memory", self.memory)

    def reader(self, protocol: Protocol, records: Records) -> Reader:
        return partial(_read, ask=_asking(protocol, records.x), y=records.y)


@dataclass(frozen=True, kw_only=True)
class SourceInference(Attack):
    """Names the client whose own model knows a record best, on average over the rounds it took part in.

    Uncalibrated, that is the lowest loss (Hu et al. 2021); `calibrated`, it is the highest rise of the
    label's log-odds over the model that was sent, which does not favour the clients of the last rounds. A
    client that was never seen is never named.
    """

    calibrated: bool = True
    family = "source"
    needs = (UpdateAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        check_flag("source-inference", "calibrated", self.calibrated)

    def run(self, access: UpdateAccess, knowledge: Knowledge, rng: torch.Generator) -> Sources:
        candidates = required(knowledge.candidates)
        ask, rounds = _asking(access.protocol, candidates.x), seen_rounds(access)
        sent = [log_odds(ask(seen.sent), candidates.y) for seen in rounds] if self.calibrated else None
        by_client: dict[int, list[tuple[int, Update]]] = {}
        for number, seen in enumerate(rounds):
            for update in single_updates(seen):
                by_client.setdefault(update.client, []).append((number, update))
        if len(by_client) < 2:
            raise CannotRun("one client was seen, so there is nothing to find out about the source")

        def better(number: int, update: Update) -> np.ndarray:
            after = ask(rounds[number].sent + update.delta)
            return (
                -losses(after, candidates.y) if sent is None else log_odds(after, candidates.y) - sent[number]
            )

        # One client at a time: with many, there is no room for what all of them know of every candidate.
        named, best = np.full(len(candidates), -1), np.full(len(candidates), -np.inf)
        for client, seen_of in sorted(by_client.items()):
            known = np.mean([better(number, update) for number, update in seen_of], axis=0)
            first = (known > best) | (named < 0)
            named, best = np.where(first, client, named), np.where(first, known, best)
        return Sources(named)


def claims(odds: np.ndarray, sent: np.ndarray | None) -> np.ndarray:
    """How far each client's log-odds, shape (K, N), stand above the others' of the round, as z-scores.

    With too few others they are compared with `sent`, the log-odds under the model sent, shape (N,).
    """
    if sent is not None:
        return np.asarray(odds - sent)
    others = [np.delete(odds, k, axis=0) for k in range(len(odds))]
    spread = [np.sqrt(other.var(0, ddof=1) + ADDED_VARIANCE) for other in others]
    return np.stack([(row - other.mean(0)) / s for row, other, s in zip(odds, others, spread)])


def _read(sent: Tensor, updates: Sequence[Tensor], ask: Ask, y: Tensor) -> np.ndarray:
    level, *odds = (log_odds(ask(sent + update), y) for update in updates)
    if not odds:
        return level[None]
    before = log_odds(ask(sent), y) if len(odds) <= REFERENCES else None
    return np.vstack([level, claims(np.stack(odds), before)])


def _asking(protocol: Protocol, x: Tensor) -> Ask:
    network = laid_out(deepcopy(protocol.architecture))

    def ask(vector: Tensor) -> np.ndarray:
        write_vector(network, vector)
        answers: np.ndarray = predict(network, x).double().log_softmax(1).numpy()
        return answers

    return ask
