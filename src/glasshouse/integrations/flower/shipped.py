"""The differential privacy that Flower ships, run by Flower's own code, as defences of an audit.

A strategy of Flower's that wraps another is given one message, that of a client or that of all, so that the
audit's own federation does what lies between. Server-side clipping is applied before the server is watched: a
server that looks at single updates sees them as they come, which no strategy of Flower's hides.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshouse.defences.defence import Defence
from glasshouse.defences.promise import SUMMING, Conditions, Promise
from glasshouse.errors import BadInput
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import ServerState, Tensors
from glasshouse.federation.updates import Delivery
from glasshouse.integrations.flower.shipped_messages import flower, instruction, quiet, reply, vector_of
from glasshouse.learning.layout import Layout
from glasshouse.learning.seeds import numpy_seeded
from glasshouse.measures.families import gaussian_epsilon
from glasshouse.options import check_number, check_share, check_whole


@dataclass(frozen=True, kw_only=True)
class LocalDpMod(Defence):
    """Flower's mod of that name: cuts an update to `clipping_norm` (L2) and adds normal noise on the client.

    The noise has the standard deviation sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon. What is promised is
    (`epsilon`, `delta`) a round; rounds are composed as what they are, normal noise. As in Flower
    there are no defaults, and nothing compares the `sensitivity` with the norm.
    """

    clipping_norm: float
    sensitivity: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        name = "LocalDpMod"
        check_number(name, "clipping_norm", self.clipping_norm, 0, open_low=True)
        check_number(name, "sensitivity", self.sensitivity, 0, open_low=True)
        check_number(name, "epsilon", self.epsilon, 0, open_low=True)
        check_share(name, "delta", self.delta)
        self.mod()

    def mod(self) -> Any:
        """Flower's own mod."""
        return flower().LocalDpMod(self.clipping_norm, self.sensitivity, self.epsilon, self.delta)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        with quiet(), numpy_seeded(rng):
            return _through(self.mod(), delta, layout)

    def canary_length(self, layout: Layout) -> float:
        return self.clipping_norm

    @property
    def multiplier(self) -> float:
        """The standard deviation of the noise over the sensitivity that was stated."""
        return math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    def worth(self, conditions: Conditions) -> float:
        """The epsilon at `delta` of all rounds, for any two updates in each: they are up to 2 norms apart."""
        true = self.multiplier * self.sensitivity / (2 * self.clipping_norm)
        return _exact(true, conditions.rounds, self.delta)

    def promises(self, conditions: Conditions) -> tuple[Promise, ...]:
        epsilon = _exact(self.multiplier, conditions.rounds, self.delta)
        promise = Promise(
            unit="client",
            epsilon=epsilon,
            delta=self.delta,
            noise=self.multiplier,
            rate=1.0,
            steps=conditions.rounds,
            sampling="all",
            neighbours="replace",
            claim=(
                f"what epsilon {self.epsilon:g} and delta {self.delta:g} a round come to, if no update moves "
                f"by more than the stated sensitivity of {self.sensitivity:g}"
            ),
        )
        return (promise,)


@dataclass(frozen=True, kw_only=True)
class _FixedClipping(Defence):
    """Flower's central differential privacy with one norm for all rounds.

    Updates are cut to `clipping_norm` (L2), and noise of the standard deviation
    noise_multiplier * clipping_norm / num_sampled_clients is added to their mean, weighted by samples.
    What is promised is what the accountant says that Flower lets users attach: every round counts for every
    client. Unless said otherwise, as many clients are sampled as take part in a round.
    """

    noise_multiplier: float
    clipping_norm: float
    num_sampled_clients: int | None = None
    delta: float = 1e-5

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_number(name, "noise_multiplier", self.noise_multiplier, 0)
        check_number(name, "clipping_norm", self.clipping_norm, 0, open_low=True)
        check_share(name, "delta", self.delta)
        if self.num_sampled_clients is not None:
            check_whole(name, "num_sampled_clients", self.num_sampled_clients, 1)
        flower()

    def settled(self, conditions: Conditions) -> "_FixedClipping":
        sampled = self.num_sampled_clients or conditions.cohort
        return type(self)(
            noise_multiplier=self.noise_multiplier,
            clipping_norm=self.clipping_norm,
            num_sampled_clients=sampled,
            delta=self.delta,
        )

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        assert self.num_sampled_clients is not None, "settled before it is used"
        # The noise is that of the base of both strategies; this one does not clip the mean once more.
        own = flower().DifferentialPrivacyClientSideFixedClipping
        strategy = own(flower().FedAvg(), self.noise_multiplier, self.clipping_norm, self.num_sampled_clients)
        with quiet(), numpy_seeded(rng):
            return _combined(strategy, mean, layout)

    def canary_length(self, layout: Layout) -> float:
        return self.clipping_norm

    def multiplier(self, conditions: Conditions) -> float:
        """The standard deviation of the noise over the most that one client can move the weighted mean.

        That is its share of the samples of a round, at most that of the largest client among the smallest
        others; where all hold as much, it is the multiplier that was asked for.
        """
        sampled = self.num_sampled_clients or conditions.cohort
        *others, largest = sorted(conditions.sizes)
        share = largest / (largest + sum(others[: conditions.cohort - 1]))
        return self.noise_multiplier / (sampled * share)

    def worth(self, conditions: Conditions) -> float:
        """The epsilon at `delta` of all rounds of one client that adds nothing, by the samples held."""
        return _exact(self.multiplier(conditions), conditions.rounds, self.delta)

    def promises(self, conditions: Conditions) -> tuple[Promise, ...]:
        promise = Promise(
            unit="client",
            epsilon=self._accounted(conditions) if self.noise_multiplier else math.inf,
            delta=self.delta,
            noise=self.noise_multiplier,
            rate=1.0,
            steps=conditions.rounds,
            sampling="all",
            neighbours="add-remove",
            accountant="RDP",
            trust=f"{SUMMING}, sees each of them and adds the noise",
            claim=f"what Flower's RdpAccountant says of the noise multiplier {self.noise_multiplier:g}",
        )
        return (promise,)

    def _accounted(self, conditions: Conditions) -> float:
        """By Flower's accountant, without amplification, which is all that it allows here."""
        own, clients = flower(), len(conditions.sizes)
        config = own.PrivacyConfig(
            self.delta,
            clients,
            own.NeighboringRelation.ADD_OR_REMOVE_ONE,
            own.SamplingMethod.NO_AMPLIFICATION,
        )
        accountant = own.RdpAccountant(config)
        event = own.GaussianPrivacyEvent(float(self.noise_multiplier), conditions.cohort, clients)
        accountant.compose(event, conditions.rounds)
        return float(accountant.get_epsilon(self.delta))


@dataclass(frozen=True, kw_only=True)
class DifferentialPrivacyServerSideFixedClipping(_FixedClipping):
    """Flower's strategy of that name: the server cuts updates to one length, and adds noise to their mean."""

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        # Flower's strategy clips each reply by itself; without noise, its mean of one reply is that reply.
        own = flower().DifferentialPrivacyServerSideFixedClipping
        with quiet():
            return _combined(own(flower().FedAvg(), 0.0, self.clipping_norm, 1), delta, layout)


@dataclass(frozen=True, kw_only=True)
class DifferentialPrivacyClientSideFixedClipping(_FixedClipping):
    """Flower's strategy of that name, with `fixedclipping_mod` at the clients."""

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        with quiet():
            return _through(flower().fixedclipping_mod, delta, layout, clipping_norm=self.clipping_norm)


@dataclass(frozen=True, kw_only=True)
class DifferentialPrivacyServerSideAdaptiveClipping(FedAvg):
    """Flower's strategy of that name around its FedAvg, as a strategy: the norm follows the updates.

    It carries the clipping norm from round to round, and takes every update, as Flower's does.
    """

    noise_multiplier: float
    initial_clipping_norm: float = 0.1
    target_clipped_quantile: float = 0.5
    clip_norm_lr: float = 0.2
    clipped_count_stddev: float | None = None

    needs_updates = True

    def __post_init__(self) -> None:
        name = "DifferentialPrivacyServerSideAdaptiveClipping"
        check_number(name, "noise_multiplier", self.noise_multiplier, 0)
        check_number(name, "initial_clipping_norm", self.initial_clipping_norm, 0, open_low=True)
        check_number(name, "target_clipped_quantile", self.target_clipped_quantile, 0, 1)
        check_number(name, "clip_norm_lr", self.clip_norm_lr, 0, open_low=True)
        if self.clipped_count_stddev is not None:
            check_number(name, "clipped_count_stddev", self.clipped_count_stddev, 0)
        flower()

    def strategy(self, sampled: int) -> Any:
        """Flower's own strategy, for so many clients in a round."""
        try:
            return flower().DifferentialPrivacyServerSideAdaptiveClipping(
                flower().FedAvg(),
                self.noise_multiplier,
                sampled,
                self.initial_clipping_norm,
                self.target_clipped_quantile,
                self.clip_norm_lr,
                self.clipped_count_stddev,
            )
        except ValueError as error:
            raise BadInput(f"Flower refuses the settings of its adaptive clipping: {error}") from error

    def begin(self, server: ServerState) -> Tensors:
        return {"clipping_norm": torch.tensor(self.initial_clipping_norm, dtype=torch.float64)}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        assert delivery.updates is not None
        own = self.strategy(len(delivery.updates))
        own.clipping_norm = float(server.memory["clipping_norm"])
        rng = torch.Generator().manual_seed(int(server.rng("flower").integers(2**62)))
        with quiet(), numpy_seeded(rng):
            sent = instruction(server.vector, server.layout)
            own.current_arrays = sent.content["arrays"]
            replies = [
                reply(sent, server.vector + update.delta, server.layout, update.samples)
                for update in delivery.updates
            ]
            arrays, _ = own.aggregate_train(server.number + 1, replies)
        norm = torch.tensor(own.clipping_norm, dtype=torch.float64)
        return vector_of(arrays, server.layout).to(server.vector.dtype), {"clipping_norm": norm}


def _exact(multiplier: float, rounds: int, delta: float) -> float:
    """The epsilon at `delta` of `rounds` sums with normal noise of that many sensitivities, exactly.

    They are one such sum of sqrt(rounds) sensitivities (Dong, Roth and Su 2022).
    """
    return gaussian_epsilon(math.sqrt(rounds) / multiplier, delta) if multiplier else math.inf


def _through(mod: Any, delta: Tensor, layout: Layout, **config: float) -> Tensor:
    """The update, shape (P,), as a client app with Flower's `mod` answers it to a model of zeros."""
    sent = instruction(torch.zeros_like(delta), layout, **config)
    answer = mod(sent, flower().context(), lambda message, context: reply(message, delta, layout, 1))
    if answer.has_error():
        raise BadInput(f"Flower's mod refuses the update: {answer.error.reason}")
    return vector_of(answer.content["arrays"], layout).to(delta.dtype)


def _combined(strategy: Any, delta: Tensor, layout: Layout) -> Tensor:
    """What Flower's `strategy` makes of one reply that moves a model of zeros by `delta`."""
    sent = instruction(torch.zeros_like(delta), layout)
    strategy.current_arrays = sent.content["arrays"]
    arrays, _ = strategy.aggregate_train(1, [reply(sent, delta, layout, 1)])
    return vector_of(arrays, layout).to(delta.dtype)
