"""MANDRAKE (Zhao et al. 2023), which its authors later called LOKI: an imprint layer with a slot per client.

In front of the imprint layer stands a convolution with as many groups of output channels as there are slots.
Every client gets a convolution of its own: the identity into its slot, zero into all others. So a client's
images change the imprint layer's weights in its slot's columns only, and the sum of all updates holds the
clients side by side: samples collide only within a slot.

The biases' gradient would mix the slots. Instead the convolution pads the image by a row above and below and
adds 1 in the client's slot: the padding is then a constant 1 that only this client has, and the gradient of
its columns is the client's own bias gradient.

Parameters grow with the slots. Where there are more clients than slots, clients share them, as evenly by
samples as possible.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.access import ServerAccess
from glasshouse.attacks.crafted.imprint import Imprint, ImprintAttack, craft, slack_of
from glasshouse.attacks.crafted.leakage import decode
from glasshouse.data.images import Images
from glasshouse.federation.updates import Delivery


@dataclass(frozen=True, kw_only=True)
class Loki(ImprintAttack):
    """Gives each client a convolution into a slot of its own before an imprint layer (MANDRAKE, LOKI)."""

    name = "mandrake"
    bins: int = 256
    slots: int = 8

    def imprint(self, access: ServerAccess, auxiliary: Images) -> Imprint:
        shape, slots = access.protocol.shape, self._slots(access)
        return craft(
            access,
            auxiliary,
            bins=self.bins,
            law=self.law,
            row=_row(shape, slots),
            front=[_convolution(shape[0], slots)],
            offset=1.0,
        )

    def models_apart(self, serving: ServerAccess) -> Mapping[int, Tensor]:
        slot_of = share_slots(serving.sizes, self.slots)
        models = [_into_slot(serving, slot) for slot in range(max(slot_of) + 1)]
        return {client: models[slot] for client, slot in enumerate(slot_of) if slot}

    def rebuild(self, serving: ServerAccess, imprint: Imprint, delivery: Delivery) -> Tensor:
        sums, _ = imprint.read(serving, serving.current, delivery)
        slot_of = share_slots(serving.sizes, self.slots)
        parts = []
        for slot, slot_sums in enumerate(sums.view(len(sums), self._slots(serving), -1).unbind(1)):
            samples = sum(serving.sizes[client] for client in delivery.clients if slot_of[client] == slot)
            if samples:
                parts.append(read_slot(slot_sums, samples, slack_of(serving), serving.protocol.shape))
        x, strength = (torch.cat(part) for part in zip(*parts))
        return x[strength.argsort(descending=True)]

    def note(self, access: ServerAccess) -> str:
        words = ["clients of different slots get different models", super().note(access)]
        slots, clients = self._slots(access), len(access.sizes)
        if slots < clients:
            words.append(f"{clients} clients share {slots} slots; more slots would part more of them")
        return "; ".join(words)

    def _slots(self, access: ServerAccess) -> int:
        """How many slots are in use."""
        return max(share_slots(access.sizes, self.slots)) + 1


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


def _into_slot(serving: ServerAccess, slot: int) -> Tensor:
    """The model for the clients of `slot`, shape (P,)."""
    vector = serving.current.clone()
    named = serving.protocol.layout.named(vector)
    for name in ("0.weight", "0.bias"):
        named[name].copy_(named[name].roll(slot * serving.protocol.shape[0], 0))
    return vector


def _row(shape: tuple[int, int, int], slots: int) -> Tensor:
    """Sums all slots' channels without the padding: the mean of a client's pixels, as it has one slot."""
    channels, height, width = shape
    row = torch.zeros(channels * slots, height + 2, width)
    row[:, 1:-1] = 1 / math.prod(shape)
    return row.flatten()
