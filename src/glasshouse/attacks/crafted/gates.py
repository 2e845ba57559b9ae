"""The layer whose biases decide what a network's head sees: shut, it passes nothing, forwards or back.

Half shut it passes the samples above a threshold, and there is a search for one that a single sample passes.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.inversion.updates import BatchNorm
from glasshouse.attacks.labels.head import Head
from glasshouse.errors import CannotRun
from glasshouse.learning.layout import write_vector
from glasshouse.models.freezing import exchanged

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
    x = torch.rand(4, *protocol.shape, generator=torch.Generator().manual_seed(0))
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
    reason = "no layer of the network falls silent when its biases are low, as those before a ReLU do"
    frozen = f", of those that are sent: {layout.sent}" if layout.frozen else ""
    raise CannotRun(f"{reason}{frozen}")


def shut(protocol: Protocol, vector: Tensor, gate: Gate) -> Tensor:
    """The model `vector`, shape (P,), with its gate shut."""
    crafted = vector.clone()
    protocol.layout.named(crafted)[gate.bias].fill_(SHUT)
    return crafted


def _silent(network: nn.Module, head: Head, x: Tensor) -> bool:
    weights = [weight for name, weight in exchanged(network).items() if name != head.bias]
    network.train()
    with torch.random.fork_rng(devices=[]):
        loss = F.cross_entropy(network(x), torch.zeros(len(x), dtype=torch.long))
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    return not any(gradient is not None and bool(gradient.any()) for gradient in gradients)


class ThresholdSearch:
    """A search for a value that just one of the samples exceeds, by the quantiles of auxiliary values."""

    def __init__(self, values: np.ndarray, samples: float) -> None:
        self._values, self._samples = values, samples
        self._low, self._high, self._last = -np.inf, np.inf, np.nan
        self._reach = max(float(np.ptp(values)), 1e-6)

    def next(self) -> float:
        """The next threshold to try."""
        if np.isnan(self._last):
            self._last = float(np.quantile(self._values, max(0.0, 1 - 1 / self._samples)))
        else:
            self._last = self._between()
        return self._last

    def narrow(self, *, too_low: bool) -> None:
        """Learn that the last threshold let more than one sample through, or none."""
        if too_low:
            self._low = self._last
        else:
            self._high = self._last

    def _between(self) -> float:
        inside = self._values[(self._values > self._low) & (self._values < self._high)]
        if len(inside):
            return float(np.median(inside))
        if np.isfinite(self._low) and np.isfinite(self._high):
            return (self._low + self._high) / 2
        self._reach *= 2
        return self._low + self._reach / 2 if np.isfinite(self._low) else self._high - self._reach / 2
