"""Exact label counts from a crafted last layer.

The server sends a head with zero weights and one bias so large that the softmax is one-hot whatever the image. Then
p - y does not depend on the model, and through all local steps the bias of every other class grows in proportion to
that class's count. A second probe with another class saturated counts the first one; the classes that both
probes see fix their relative scale, so that clipping changes nothing.

Exact where all batches of a client are equally large and there is no momentum; close elsewhere.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import ServerAccess
from glasshouse.attacks.attack import Attack, CountedLabels, Knowledge, LabelCounts
from glasshouse.attacks.labels.head import Head, find_head, whole_counts
from glasshouse.federation.updates import Delivery


@dataclass(frozen=True, kw_only=True)
class SaturatedHead(Attack):
    """Sends a last layer whose answer is fixed, so that the updates spell out the label counts."""

    bias: float = 1000.0
    family = "labels"
    needs = (ServerAccess,)

    def run(self, access: ServerAccess, knowledge: Knowledge, rng: torch.Generator) -> LabelCounts:
        head = find_head(access.protocol)
        everyone = range(len(access.sizes))
        probes = [access.exchange(self.craft(access, head, saturated), everyone) for saturated in (0, 1)]
        growth = [_bias_growth(access, head, delivery) for delivery in probes]
        counted = []
        for clients in growth[0]:
            shares = combine_probes(growth[0][clients], growth[1][clients])
            samples = sum(access.sizes[client] for client in clients)
            counted.append(CountedLabels(clients, whole_counts(shares, samples)))
        return LabelCounts(tuple(counted))

    def craft(self, access: ServerAccess, head: Head, saturated: int) -> Tensor:
        """The current model with a head that always answers `saturated`, shape (P,)."""
        vector = access.current.clone()
        named = access.protocol.layout.named(vector)
        named[head.weight].zero_()
        named[head.bias].zero_()
        named[head.bias][saturated] = self.bias
        return vector


def combine_probes(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Relative counts from the growth of the biases with class 0, then class 1, saturated."""
    seen = first[2:].sum(), second[2:].sum()
    scale = seen[0] / seen[1] if min(seen) > 0 else 1.0
    return np.concatenate([[second[0] * scale], first[1:]])


def _bias_growth(access: ServerAccess, head: Head, delivery: Delivery) -> dict[tuple[int, ...], np.ndarray]:
    def growth(delta: Tensor) -> np.ndarray:
        values: np.ndarray = access.protocol.layout.named(delta)[head.bias].double().numpy()
        return values

    if delivery.updates is None:
        return {delivery.clients: growth(delivery.mean)}
    return {(update.client,): growth(update.delta) for update in delivery.updates}
