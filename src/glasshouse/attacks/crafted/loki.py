"""MANDRAKE (Zhao et al. 2023), which its authors later called LOKI: an imprint layer with a slot per client.

In front of the imprint layer stands a convolution with as many groups of output channels as there are slots.
Every client gets a convolution of its own: the identity into its slot, zero into all others. So a client's
images change the imprint layer's weights in its slot's columns only, and the sum of all updates holds the
clients side by side: samples collide only within a slot.

The biases' gradient would mix the slots. Instead the convolution pads the image by a row above and below and
adds 1 in the client's slot: the padding is then a constant 1 that only this client has, and the gradient of
its columns is the client's own bias gradient.

Parameters grow with the slots. Where there are more clients than slots, clients share them, as evenly by
samples as can be.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.access import BlindServerAccess, ServerAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.crafted.imprint import (
    check_bins,
    craft,
    decode,
    frozen_words,
    may_rebuild,
    slack_of,
)
from glasshouse.attacks.crafted.leakage import Law
from glasshouse.attacks.plain_steps import check_plain_steps
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.options import check_whole


@dataclass(frozen=True, kw_only=True)
class Loki(Attack):
    """Gives each client a convolution into a slot of its own before an imprint layer (MANDRAKE, LOKI)."""

    bins: int = 256
    slots: int = 8
    law: Law = "empirical"
    family = "reconstruction"
    needs = (BlindServerAccess,)
    knows = ("auxiliary",)
    changes_network = True

    def __post_init__(self) -> None:
        check_bins("mandrake", self.bins, self.law)
        check_whole("mandrake", "slots", self.slots, 1, 1024)

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        assert knowledge.auxiliary is not None
        check_plain_steps(access.protocol.recipe)
        started = time.perf_counter()
        slot_of = share_slots(access.sizes, self.slots)
        slots, shape = max(slot_of) + 1, access.protocol.shape
        imprint = craft(
            access,
            knowledge.auxiliary,
            bins=self.bins,
            law=self.law,
            row=_row(shape, slots),
            front=[_convolution(shape[0], slots)],
            offset=1.0,
        )
        serving = may_rebuild(access)(imprint.network)
        models = [_into_slot(serving, slot, shape[0]) for slot in range(slots)]
        crafted = time.perf_counter()
        apart = {client: models[slot] for client, slot in enumerate(slot_of) if slot}
        delivery = serving.exchange(models[0], range(len(access.sizes)), apart)
        received = time.perf_counter()
        sums, _ = imprint.read(serving, models[0], delivery)
        found = []
        for slot, sent in enumerate(sums.view(len(sums), slots, -1).unbind(1)):
            samples = sum(access.sizes[client] for client in delivery.clients if slot_of[client] == slot)
            if samples:
                found.append(read_slot(sent, samples, slack_of(access), shape))
        x, strength = (torch.cat(part) for part in zip(*found))
        x = x[strength.argsort(descending=True)]
        online = time.perf_counter() - received
        said = ["clients of different slots get different models", frozen_words(access)]
        if slots < len(access.sizes):
            said.append(
                f"{len(access.sizes)} clients share {slots} slots; more slots would part more of them"
            )
        return Reconstructions(x, delivery.clients, crafted - started, online, "; ".join(said))


def share_slots(sizes: Sequence[int], slots: int) -> list[int]:
    """Each client's slot: the largest clients first, each into the slot that has the fewest samples yet."""
    held = [0] * min(slots, len(sizes))
    chosen = [0] * len(sizes)
    for client in sorted(range(len(sizes)), key=lambda client: -sizes[client]):
        chosen[client] = held.index(min(held))
        held[chosen[client]] += sizes[client]
    return chosen


def read_slot(sums: Tensor, samples: int, slack: int, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """The images in one slot's bins and the size of their weights, from sums of shape (k, C (H + 2) W)."""
    padded = sums.view(len(sums), shape[0], shape[1] + 2, shape[2])
    weights = padded[:, :, [0, -1]].flatten(1).mean(1)
    return decode(padded[:, :, 1:-1].flatten(1), weights, samples, slack, shape, offset=1.0)


def _convolution(channels: int, slots: int) -> nn.Conv2d:
    """The convolution of a client in slot 0; frozen, so that several local steps leave the slots apart."""
    layer = nn.Conv2d(channels, channels * slots, 1, padding=(1, 0))
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()  # type: ignore[union-attr]
        layer.weight[:channels, :, 0, 0] = torch.eye(channels)
        layer.bias[:channels] = 1.0  # type: ignore[index]
    return layer.requires_grad_(False)


def _into_slot(serving: ServerAccess, slot: int, channels: int) -> Tensor:
    """The model for the clients of `slot`, shape (P,)."""
    vector = serving.current.clone()
    named = serving.protocol.layout.named(vector)
    for name in ("0.weight", "0.bias"):
        named[name].copy_(named[name].roll(slot * channels, 0))
    return vector


def _row(shape: tuple[int, int, int], slots: int) -> Tensor:
    """Sums all slots' channels without the padding: the mean of a client's pixels, as it has one slot."""
    channels, height, width = shape
    row = torch.zeros(channels * slots, height + 2, width)
    row[:, 1:-1] = 1 / math.prod(shape)
    return row.flatten()
