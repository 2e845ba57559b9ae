"""The privacy filters that NVIDIA FLARE ships, run by FLARE's own code, as defences of an audit.

Each acts on what a client sends, as a task-result filter does. FLARE divides an update by the local steps
that the client reports, and then cuts it; `steps` is that number, 1 where clients report none.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from glasshouse.defences.defence import Defence
from glasshouse.defences.promise import Conditions, Promise
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout
from glasshouse.learning.seeds import numpy_seeded
from glasshouse.options import check_choice, check_flag, check_number, check_share, check_whole

BEYOND = 10.0
"""So many times the bound on an entry is what canaries send, on average: nearly all of it is cut."""

ORDERS = tuple(1 + 2 ** (power / 4) for power in range(-48, 25))
"""Renyi orders, from just above 1 to 65."""


@dataclass(frozen=True, kw_only=True)
class PercentilePrivacy(Defence):
    """FLARE's filter of that name: drops small entries and cuts large ones, without noise or a promise.

    Entries below the `percentile` of their sizes become zero, the others are cut to [-gamma, gamma].
    """

    percentile: float = 10
    gamma: float = 0.01
    steps: int = 1

    def __post_init__(self) -> None:
        check_number("PercentilePrivacy", "percentile", self.percentile, 0, 100)
        check_number("PercentilePrivacy", "gamma", self.gamma, 0, open_low=True)
        check_whole("PercentilePrivacy", "steps", self.steps, 1)
        self.filter()

    def filter(self) -> Any:
        """FLARE's own filter."""
        return _flare().PercentilePrivacy(percentile=self.percentile, gamma=self.gamma)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        return filtered(self.filter(), delta, layout, rng, self.steps)

    def canary_length(self, layout: Layout) -> float:
        return BEYOND * self.gamma * self.steps * math.sqrt(layout.size)


@dataclass(frozen=True, kw_only=True)
class SVTPrivacy(Defence):
    """FLARE's filter of that name: chooses a `fraction` of the entries by the sparse vector technique.

    The entries are cut to [-gamma, gamma] and sent with Laplace noise of the scale 2 gamma / noise_var; the
    choice among them costs `epsilon`. What is promised is the sum in the "ledger" that FLARE's filter keeps,
    or the argument "epsilon", round by round, taken at its word.
    """

    fraction: float = 0.1
    epsilon: float = 0.1
    noise_var: float = 0.1
    gamma: float = 1e-5
    tau: float = 1e-6
    replace: bool = True
    epsilon_release: float | None = None
    steps: int = 1
    delta: float = 1e-5
    promised: Literal["ledger", "epsilon"] = "ledger"

    def __post_init__(self) -> None:
        name = "SVTPrivacy"
        check_number(name, "fraction", self.fraction, 0, 1, open_low=True)
        check_number(name, "epsilon", self.epsilon, 0, open_low=True)
        check_number(name, "noise_var", self.noise_var, 0, open_low=True)
        check_number(name, "gamma", self.gamma, 0, open_low=True)
        check_number(name, "tau", self.tau, 0)
        check_flag(name, "replace", self.replace)
        if self.epsilon_release is not None:
            check_number(name, "epsilon_release", self.epsilon_release, 0, open_low=True)
        check_whole(name, "steps", self.steps, 1)
        check_share(name, "delta", self.delta)
        check_choice(name, "promised", self.promised, ("ledger", "epsilon"))
        self.filter()

    def filter(self) -> Any:
        """FLARE's own filter."""
        return _flare().SVTPrivacy(
            fraction=self.fraction,
            epsilon=self.epsilon,
            noise_var=self.noise_var,
            gamma=self.gamma,
            tau=self.tau,
            replace=self.replace,
            epsilon_release=self.epsilon_release,
        )

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        return filtered(self.filter(), delta, layout, rng, self.steps)

    def canary_length(self, layout: Layout) -> float:
        return BEYOND * self.gamma * self.steps * math.sqrt(layout.size)

    def released(self, entries: int) -> int:
        """How many of so many entries are sent in a round, at most."""
        return min(math.ceil(entries * self.fraction), entries)

    def per_value(self, entries: int) -> float:
        """The epsilon of each value that is sent: the width of the interval over the scale of the noise."""
        if self.epsilon_release is None:
            return self.noise_var
        return self.epsilon_release / self.released(entries)

    def ledger(self, entries: int) -> float:
        """What FLARE's own accountant books for a round in which so many entries are filtered."""
        own = self.filter()
        with _quiet(), numpy_seeded(torch.Generator().manual_seed(0)):
            _process(own, {"all": np.zeros(entries, np.float32)}, self.steps)
        return float(own.get_privacy_spent())

    def worth(self, conditions: Conditions) -> float:
        """The epsilon, at `delta`, of all rounds, for any two updates that a client may send in each.

        That of all values sent follows from their Laplace noise by Renyi divergences. That of their choice
        is summed as FLARE does, for as many positive answers as values are sent; that the filter asks on
        until it has enough, and may accept more than it sends, is not counted against it here.
        """
        count = self.released(conditions.entries) * conditions.rounds
        values = _laplace_epsilon(self.per_value(conditions.entries), count, self.delta)
        return self.epsilon * conditions.rounds + values

    def promises(self, conditions: Conditions) -> tuple[Promise, ...]:
        if not conditions.entries:
            return ()
        at_its_word = self.promised == "epsilon"
        a_round = self.epsilon if at_its_word else self.ledger(conditions.entries)
        whose = (
            f"SVTPrivacy's epsilon of {self.epsilon:g}, taken for what a round costs"
            if at_its_word
            else f"FLARE's own ledger, which sums {a_round:,.6g} a round (delta 0)"
        )
        scale_over_width = 1 / self.per_value(conditions.entries)
        promise = Promise(
            unit="client",
            epsilon=a_round * conditions.rounds,
            delta=self.delta,
            noise=scale_over_width * math.sqrt(2 / self.released(conditions.entries)),
            rate=1.0,
            steps=conditions.rounds,
            sampling="all",
            neighbours="replace",
            accountant="PLD",
            claim=whose,
        )
        return (promise,)


def filtered(own: Any, delta: Tensor, layout: Layout, rng: torch.Generator, steps: int) -> Tensor:
    """The update, shape (P,), as FLARE's filter `own` lets it leave the client."""
    named = {name: tensor.detach().numpy().copy() for name, tensor in layout.named(delta).items()}
    with _quiet(), numpy_seeded(rng):
        kept = _process(own, named, steps)
    pieces = [torch.from_numpy(np.ascontiguousarray(kept[name])).reshape(-1) for name in layout.names]
    return torch.cat(pieces).to(delta.dtype)


def _process(own: Any, named: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    """What the filter makes of a weight difference, given as FLARE's clients give it."""
    flare = _flare()
    meta = {flare.MetaKey.NUM_STEPS_CURRENT_ROUND: steps}
    sent = flare.DXO(flare.DataKind.WEIGHT_DIFF, data=named, meta=meta).to_shareable()
    kept: dict[str, np.ndarray] = flare.from_shareable(own.process(sent, flare.FLContext())).data
    return kept


def _laplace_epsilon(epsilon: float, count: int, delta: float) -> float:
    """The epsilon at `delta` of `count` values with Laplace noise, each of which alone costs `epsilon`.

    The fewer of the plain sum and dp-accounting's Renyi bound, whose best order falls to 1 as they grow many.
    """
    from dp_accounting import LaplaceDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(ORDERS)
    accountant.compose(LaplaceDpEvent(1 / epsilon), count)
    return min(count * epsilon, float(accountant.get_epsilon(delta)))


@contextmanager
def _quiet() -> Iterator[None]:
    """FLARE's filters write to the log with every update."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _Flare:
    """The parts of the package `nvflare` that are used here."""

    def __init__(self) -> None:
        from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
        from nvflare.apis.fl_context import FLContext
        from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
        from nvflare.app_common.filters.svt_privacy import SVTPrivacy

        self.DXO, self.DataKind, self.MetaKey, self.from_shareable = DXO, DataKind, MetaKey, from_shareable
        self.FLContext = FLContext
        self.PercentilePrivacy, self.SVTPrivacy = PercentilePrivacy, SVTPrivacy


def _flare() -> Any:
    try:
        return _Flare()
    except ImportError as error:
        raise BadInput(
            f"FLARE's filters need NVIDIA FLARE ({error}); install it with: pip install 'glasshouse[nvflare]'"
        ) from None
