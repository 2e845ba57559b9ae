"""Model inconsistency (Pasquini et al. 2022): only one client's gradient is left in the sum.

All clients but the target get a model with a shut layer: biases so low that the ReLU after it passes nothing.
Nothing before the layer moves then, nor do the head's weights, whose inputs are zero. Of what the others send
only the head's bias is not zero, so all other weights in the sum moved as the target's did, times its share.

The others' labels show in that bias, and it cannot be cleaned of them: cross-entropy is linear in the label.
The head's weights can tell the target's labels instead. In a first round the target's features are made
constant and one class saturated, so each row of the head grows with the count of its class (as in
`saturated-head`).
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.gates import Gate, find_gate, shut
from glasshouse.attacks.crafted.saturated_head import decode_growth, without_smoothing
from glasshouse.attacks.crafted.singling import SinglingOut
from glasshouse.attacks.inversion.label_guesses import repeated
from glasshouse.attacks.inversion.target import Target
from glasshouse.attacks.inversion.updates import (
    AVERAGED,
    MIXED,
    AttackedUpdate,
    check_scale,
    mean_decay,
    training_network,
)
from glasshouse.attacks.labels.head import Head, find_head
from glasshouse.errors import BadInput, reason_of
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import read_vector
from glasshouse.measures.labels import whole_counts
from glasshouse.options import check_whole

SATURATED = 1000.0
"""A bias of the head that leaves the other classes no probability."""

FEATURE = 4.0
"""What the target's features are while its labels are counted: well above what a shortcut may add to them."""


@dataclass(frozen=True, kw_only=True)
class Eluding(SinglingOut):
    """Sends one client a live model and the others a dead one, and inverts what is left of the sum.

    For a client with more than `most` images it looks for `most` that explain its gradient together. `steps`
    null takes as many as about a minute allows; more give better images.
    """

    name = "eluding"
    target: int = 0
    most: int = 8
    steps: int | None = None
    restarts: int = 1
    tv: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.name, "target", self.target, 0)
        check_whole(self.name, "most", self.most, 1)

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        parts = reason_of(_find_parts, protocol, read_vector(protocol.architecture))
        return reason_of(check_scale, protocol.recipe) or parts

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        if self.target >= len(access.sizes):
            raise BadInput(
                f"eluding target = {self.target}, but there are {len(access.sizes)} clients; "
                "they are numbered from 0"
            )
        began = time.perf_counter()
        protocol, live, held = access.protocol, access.current, access.sizes[self.target]
        head, gate = _find_parts(protocol, live)
        dead = shut(protocol, live, gate)
        counting = counting_model(protocol, live, head, gate)
        offline = time.perf_counter() - began

        everyone = range(len(access.sizes))
        first = access.exchange(dead, everyone, apart={self.target: counting})
        second = access.exchange(dead, everyone, apart={self.target: live})
        if not all(self.target in delivery.clients for delivery in (first, second)):
            note = f"client {self.target} was not among those that sent an update"
            nothing = Rebuilt(torch.empty(0, *protocol.shape), (self.target,))
            return Reconstructions((nothing,), offline, 0.0, note)

        began = time.perf_counter()
        counts = target_labels(protocol, head, self.target_update(access, first, dead), held)
        update = self.target_update(access, second, dead)
        count = min(held, self.most)
        target = Target(
            training_network(protocol, live),
            protocol.layout,
            AttackedUpdate(protocol, 1, live, update, (self.target,), (held,)).gradient(),
            protocol.shape,
            protocol.classes,
            count,
            labels=repeated(whole_counts(counts, count)),
            known=unpolluted(protocol, head, gate),
            smoothing=protocol.recipe.label_smoothing,
        )
        rebuilt = self.inverted(target, (self.target,), rng)
        online = time.perf_counter() - began
        return Reconstructions((rebuilt,), offline, online, self._note(protocol, held))

    def target_update(self, access: BlindServerAccess, delivery: Delivery, dead: Tensor) -> Tensor:
        """The target's update, shape (P,), but for the head's bias and the buffers, which all move."""
        total = delivery.mean * (delivery.samples / access.sizes[self.target])
        others = [access.sizes[client] for client in delivery.clients if client != self.target]
        drift = mean_decay(access.protocol, dead, others)
        return total - drift * (sum(others) / access.sizes[self.target])

    def _note(self, protocol: Protocol, held: int) -> str:
        words = ["2 rounds with the same client, which gets another model than the others"]
        if protocol.recipe.total_steps(held) > 1:
            words.append(AVERAGED)
        if protocol.recipe.mix_up:
            words.append(MIXED)
        if held > self.most:
            words.append(f"{self.most} images were sought to explain the gradient of {held}")
        return "; ".join(words)


def _find_parts(protocol: Protocol, live: Tensor) -> tuple[Head, Gate]:
    """The network's head, and the layer that silences it, or `CannotRun` where either is missing."""
    head = find_head(protocol)
    return head, find_gate(protocol, live, head)


def counting_model(protocol: Protocol, live: Tensor, head: Head, gate: Gate) -> Tensor:
    """A model with constant features that always answers class 0, so that the head's rows count labels."""
    crafted = live.clone()
    named = protocol.layout.named(crafted)
    named[gate.weight].zero_()
    named[gate.bias].fill_(FEATURE)
    named[head.weight].zero_()
    named[head.bias].zero_()
    named[head.bias][0] = SATURATED
    return crafted


def target_labels(protocol: Protocol, head: Head, delta: Tensor, held: int) -> np.ndarray:
    """The target's label counts from its update of the counting model, shape (classes,).

    Exact where the features are constant; where a shortcut adds to them the counts are only near.
    """
    growth: np.ndarray = protocol.layout.named(delta)[head.weight].double().mean(1).numpy() / FEATURE
    exact = decode_growth(growth, protocol.recipe, held)
    if exact is not None:
        return exact
    growth = without_smoothing(growth, protocol.recipe, [held])
    counts = np.maximum(growth * held / protocol.recipe.effective_rate(held), 0)
    counts[0] = max(0.0, held - counts[1:].sum())
    return whole_counts(counts, held)


def unpolluted(protocol: Protocol, head: Head, gate: Gate) -> Tensor:
    """Which entries of the sum only the target moved, bool of shape (P,)."""
    known = torch.zeros(protocol.layout.size, dtype=torch.bool)
    known[: protocol.layout.trainable] = True
    protocol.layout.named(known)[head.bias].fill_(False)
    if protocol.recipe.weight_decay:
        # It moves the others' shut gates by more than single precision can tell from the target's step.
        protocol.layout.named(known)[gate.bias].fill_(False)
    return known
