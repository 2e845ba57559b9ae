"""The layer whose biases decide what a network's head sees: shut, it passes nothing, forwards or back."""

from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.inversion.updates import BatchNorm
from glasshouse.attacks.labels.head import Head
from glasshouse.errors import CannotRun
from glasshouse.learning.layout import write_vector

SHUT = -1e4
"""A bias that no activation of a working network outweighs."""


@dataclass(frozen=True)
class Gate:
    """The names of a layer and its parameters; `linear` where each row gives one input of the head."""

    layer: str
    weight: str
    bias: str
    linear: bool


def find_gate(protocol: Protocol, vector: Tensor, head: Head) -> Gate:
    """The last layer that silences the network when its biases are low, or `CannotRun` where none does.

    Silent means: no parameter but the head's bias has any gradient. It is found by trial, on noise, so that
    it does not matter how the network is written.
    """
    layout, network = protocol.layout, deepcopy(protocol.architecture)
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(4, *protocol.shape, generator=rng)
    inputs = layout.shapes[layout.names.index(head.weight)][1]
    for name, module in reversed(list(network.named_modules())):
        gate = Gate(name, f"{name}.weight".lstrip("."), f"{name}.bias".lstrip("."), False)
        known = {gate.weight, gate.bias} <= set(layout.names)
        if gate.bias == head.bias or not known or not isinstance(module, nn.Linear | nn.Conv2d | BatchNorm):
            continue
        write_vector(network, shut(protocol, vector, gate))
        if _silent(network, head, x):
            linear = isinstance(module, nn.Linear) and module.out_features == inputs
            return Gate(name, gate.weight, gate.bias, linear)
    raise CannotRun("no layer of the network falls silent when its biases are low, as those before a ReLU do")


def shut(protocol: Protocol, vector: Tensor, gate: Gate) -> Tensor:
    """The model `vector`, shape (P,), with its gate shut."""
    crafted = vector.clone()
    protocol.layout.named(crafted)[gate.bias].fill_(SHUT)
    return crafted


def _silent(network: nn.Module, head: Head, x: Tensor) -> bool:
    named = [(name, weight) for name, weight in network.named_parameters() if name != head.bias]
    network.train()
    with torch.random.fork_rng(devices=[]):
        loss = F.cross_entropy(network(x), torch.zeros(len(x), dtype=torch.long))
    gradients = torch.autograd.grad(loss, [weight for _, weight in named], allow_unused=True)
    return not any(gradient is not None and bool(gradient.any()) for gradient in gradients)
