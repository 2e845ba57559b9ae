"""Fishing for user data (Wen et al. 2022): a crafted head that leaves one sample in the gradient of many.

Class fishing. One class is saturated and only the target class keeps its row of the head. The answer then
does not depend on the image, and only samples of the target class pass any gradient on to the layers below.
The head's biases count the labels on the way (as in `saturated-head`).

Feature fishing. Where the class has several samples, the head looks at one of its inputs alone, and the bias
of that input's own neuron is a threshold: samples below it are silent. A search over rounds raises and lowers
it until one sample is left, which shows in the gradient of that bias: all samples that pass add the same.
(A threshold in the softmax itself would not do: cross-entropy is linear in the label, so where samples of the
target class fall silent those of the others become loud.)
"""

import time
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.gates import Gate, ThresholdSearch, find_gate
from glasshouse.attacks.crafted.singling import SinglingOut
from glasshouse.attacks.inversion.target import Target
from glasshouse.attacks.inversion.updates import (
    AVERAGED,
    COUPLED,
    MIXED,
    AttackedUpdate,
    check_scale,
    frozen_network,
    mixes_batches,
)
from glasshouse.attacks.labels.head import Head, find_head
from glasshouse.data.images import Images
from glasshouse.errors import BadInput, CannotRun, reason_of
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import write_vector
from glasshouse.options import check_number, check_whole

LONE = 0.2
"""How far from 1 a count may be that stands for one sample."""

AGAIN = 4
"""In as many rounds the only sample of a class is asked for: its client may drop out of one."""

AUXILIARY = 256
"""Auxiliary images that are looked at for a feature and its quantiles."""


@dataclass(frozen=True, kw_only=True)
class Fishing(SinglingOut):
    """Sends models that silence all samples but one, and inverts its gradient.

    It fishes for class `label`; null takes the class with the fewest samples. After `rounds` rounds it gives
    up the search. The target's row of the head is scaled by `strength`, and a rival class saturated by `bias`
    (0.5 and 1000, as the attack was published). `steps` null takes as many as about a minute allows; more
    give better images.
    """

    name = "fishing"
    label: int | None = None
    rounds: int = 16
    strength: float = 0.5
    bias: float = 1000.0
    steps: int | None = None
    restarts: int = 1
    tv: float = 0.2
    knows = ("auxiliary",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label is not None:
            check_whole(self.name, "label", self.label, 0)
        check_whole(self.name, "rounds", self.rounds, 2)
        check_number(self.name, "strength", self.strength, 0, 100, open_low=True)
        check_number(self.name, "bias", self.bias, 200, 1e6)

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        return reason_of(check_scale, protocol.recipe) or reason_of(find_head, protocol)

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        assert knowledge.auxiliary is not None
        protocol = access.protocol
        if self.label is not None and self.label >= protocol.classes:
            raise BadInput(
                f"fishing label = {self.label}, but there are {protocol.classes} classes; "
                "they are numbered from 0"
            )
        began = time.perf_counter()
        server = FishingServer(access, find_head(protocol), self.strength, self.bias)
        offline = time.perf_counter() - began

        counts = server.label_counts()
        # Rounded, so that the channel's noise does not decide between equals.
        rarest = int(np.where(counts > 1 - LONE, counts.round(1), np.inf).argmin())
        label = rarest if self.label is None else self.label
        if counts[label] < 1 - LONE:
            return server.nothing(offline, f"no client holds a sample of class {label}")
        if abs(counts[label] - 1) < LONE:
            alone: LoneGradient | None = server.fish_class(label, min(AGAIN, self.rounds - 1))
        else:
            began = time.perf_counter()
            feature = server.choose_feature(knowledge.auxiliary, label, counts[label])
            offline += time.perf_counter() - began
            alone = server.fish_feature(feature, self.rounds - 1)
        if alone is None:
            return server.nothing(offline, f"no single sample of class {label} was left")

        began = time.perf_counter()
        target = Target(
            alone.network,
            protocol.layout,
            alone.gradient,
            protocol.shape,
            protocol.classes,
            count=1,
            labels=torch.tensor([label]),
            known=alone.known,
            smoothing=protocol.recipe.label_smoothing,
        )
        rebuilt = self.inverted(target, alone.clients, rng)
        online = time.perf_counter() - began
        return Reconstructions((rebuilt,), offline, online, server.note(f"class {label}"))


@dataclass(frozen=True, eq=False)
class Feature:
    """A neuron before the head by which the `samples` samples of class `label` are told apart.

    `values` are those it has on auxiliary images of the class, rising; its bias is one of the gate's.
    """

    label: int
    gate: Gate
    neuron: int
    values: np.ndarray
    samples: float


@dataclass(frozen=True, eq=False)
class LoneGradient:
    """The gradient of one sample, shape (P,), up to scale, and the network that it is a gradient of.

    `known`, bool of shape (P,), marks the entries that no other sample has moved.
    """

    gradient: Tensor
    known: Tensor
    network: torch.nn.Module
    clients: tuple[int, ...]


class FishingServer:
    """Sends models with crafted heads, and reads what comes back; `rounds` counts its rounds."""

    def __init__(self, access: BlindServerAccess, head: Head, strength: float, bias: float) -> None:
        self._access, self._protocol, self._head = access, access.protocol, head
        self._strength, self._bias = strength, bias
        self.rounds = 0

    def label_counts(self) -> np.ndarray:
        """How many samples of each class there are, shape (classes,); exact for one local step."""
        sent, delivery = self._send(self.craft(None))
        growth = self._gradient(sent, delivery, self._head.bias).neg().double().numpy()
        counts: np.ndarray = growth * delivery.samples
        counts[0] = delivery.samples - counts[1:].sum()
        return counts

    def fish_class(self, label: int, rounds: int = 1) -> LoneGradient | None:
        """The gradient of the only sample of `label`, or None if it was in none of the rounds alone."""
        row = self._named(self._access.current)[self._head.weight][label]
        for _ in range(rounds):
            sent, delivery = self._send(self.craft(label, row * self._strength))
            count = -self._gradient(sent, delivery, self._head.bias)[label] * delivery.samples
            if abs(count - 1) < LONE:
                return self._alone(sent, sent, delivery, label)
        return None

    def choose_feature(self, auxiliary: Images, label: int, samples: float) -> Feature:
        """The neuron before the head that auxiliary images differ in most, with its values on them."""
        gate = find_gate(self._protocol, self._access.current, self._head)
        if not gate.linear:
            raise CannotRun(
                f"class {label} has {samples:.0f} samples, and the network has no linear layer "
                "before its head whose biases could part them"
            )
        outputs = self._outputs(gate, auxiliary[:AUXILIARY])
        neuron = int(outputs.std(0).argmax())
        of_class = auxiliary.y[:AUXILIARY] == label
        values = outputs[of_class if of_class.sum() > 1 else slice(None), neuron]
        return Feature(label, gate, neuron, np.sort(values.double().numpy()), samples)

    def fish_feature(self, feature: Feature, rounds: int) -> LoneGradient | None:
        """The gradient of the sample with the highest value, or None if it was not alone in time."""
        thresholds = ThresholdSearch(feature.values, feature.samples)
        for _ in range(rounds):
            sent, delivery = self._send(self.craft_gate(feature, thresholds.next()))
            passed = self._gradient(sent, delivery, feature.gate.bias)[feature.neuron].item()
            count = -passed * delivery.samples / self._strength
            if abs(count - 1) < LONE:
                # With the gate open every image has a gradient, wherever the inversion begins. The head's row
                # hears the silent samples too, but through a shut gate they reach nothing below it.
                return self._alone(sent, self.craft_gate(feature, None), delivery, None)
            thresholds.narrow(too_low=count > 1)
        return None

    def craft(self, label: int | None, row: Tensor | None = None) -> Tensor:
        """A model whose answer is fixed and whose head has but one row, that of `label`; shape (P,)."""
        crafted = self._access.current.clone()
        named = self._named(crafted)
        named[self._head.weight].zero_()
        named[self._head.bias].zero_()
        named[self._head.bias][1 if label == 0 else 0] = self._bias
        if label is not None and row is not None:
            named[self._head.weight][label] = row
        return crafted

    def craft_gate(self, feature: Feature, threshold: float | None) -> Tensor:
        """A model whose head looks at one neuron, which is silent below `threshold`, or never (null)."""
        row = torch.zeros_like(self._named(self._access.current)[self._head.weight][feature.label])
        row[feature.neuron] = self._strength
        crafted = self.craft(feature.label, row)
        if threshold is None:
            # As far up as the saturated class allows: the answer must stay fixed.
            threshold = -self._bias / (4 * self._strength)
        self._named(crafted)[feature.gate.bias][feature.neuron] -= threshold
        return crafted

    def unpolluted(self, label: int | None) -> Tensor:
        """The entries that silent samples leave alone: all but the head, save its row `label` if given."""
        known = torch.zeros(self._protocol.layout.size, dtype=torch.bool)
        known[: self._protocol.layout.trainable] = True
        named = self._named(known)
        for name in (self._head.weight, self._head.bias):
            named[name].fill_(False)
        if label is not None:
            named[self._head.weight][label] = True
        return known

    def nothing(self, offline: float, reason: str) -> Reconstructions:
        """No image, and why."""
        none, everyone = torch.empty(0, *self._protocol.shape), tuple(range(len(self._access.sizes)))
        return Reconstructions((Rebuilt(none, everyone),), offline, 0.0, self.note(reason))

    def note(self, words: str) -> str:
        """`words` with the number of rounds and what was approximated."""
        parts = [f"{words}, {self.rounds} rounds"]
        if max(self._protocol.recipe.total_steps(size) for size in self._access.sizes) > 1:
            parts.append(AVERAGED)
        if mixes_batches(self._protocol.architecture):
            parts.append(COUPLED)
        if self._protocol.recipe.mix_up:
            parts.append(MIXED)
        return "; ".join(parts)

    def _send(self, vector: Tensor) -> tuple[Tensor, Delivery]:
        self.rounds += 1
        return vector, self._access.exchange(vector, range(len(self._access.sizes)))

    def _alone(self, sent: Tensor, seen: Tensor, delivery: Delivery, label: int | None) -> LoneGradient:
        update = self._update(sent, delivery)
        network = frozen_network(self._protocol, seen, delivery.mean, max(update.sizes))
        return LoneGradient(update.gradient(), self.unpolluted(label), network, delivery.clients)

    def _gradient(self, sent: Tensor, delivery: Delivery, name: str) -> Tensor:
        """The mean gradient of the parameter `name` over all samples."""
        return self._named(self._update(sent, delivery).gradient())[name]

    def _update(self, sent: Tensor, delivery: Delivery) -> AttackedUpdate:
        sizes = tuple(self._access.sizes[client] for client in delivery.clients)
        return AttackedUpdate(self._protocol, self.rounds, sent, delivery.mean, delivery.clients, sizes)

    def _outputs(self, gate: Gate, images: Images) -> Tensor:
        """What the gate's neurons give before their ReLU, shape (N, width), in batches like the clients'."""
        network, outputs = deepcopy(self._protocol.architecture), []
        write_vector(network, self._access.current)
        network.train()
        network.get_submodule(gate.layer).register_forward_hook(lambda _, __, output: outputs.append(output))
        size = self._protocol.recipe.batch(int(np.median(self._access.sizes)))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            # Batches of nearly that size, none of which has just one image.
            for chunk in images.x.tensor_split(max(1, len(images) // max(2, size))):
                network(chunk)
        return torch.cat(outputs)

    def _named(self, vector: Tensor) -> dict[str, Tensor]:
        return self._protocol.layout.named(vector)
