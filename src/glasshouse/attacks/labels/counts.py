"""Label counts from the last layer's update, by the linear system of Ma et al. (2023), "iLRG".

With cross-entropy the head's bias gradient is g_j = mean_i (p_ij - [y_i = j]) and its weight gradient
G_j = mean_i (p_ij - [y_i = j]) h_i, so G_j / g_j is close to the mean feature of class j. Its prediction P_j
stands for the predictions of the class, and the counts n solve  sum_c n_c (P_cj - [c = j]) = N g_j  with
sum_c n_c = N. The system is exact when the predictions within a class agree, as they do for one sample each.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from glasshouse.access import AggregateAccess, UpdateAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.labels.head import Head, find_head
from glasshouse.errors import CannotRun
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.learning.layout import Layout
from glasshouse.measures.labels import whole_counts

WELL_CONDITIONED = 10.0
"""Up to this condition number the system determines the counts.

It is 3 for a model that knows nothing and grows as predictions come to resemble labels, in long local
training above all; beyond it the attack has nothing better to say than that all classes are equally frequent.
"""

Observation = tuple[Tensor, Tensor, tuple[int, ...], tuple[int, ...]]
"""The model sent, its change, whose samples are in it, and how many each has."""


@dataclass(frozen=True, kw_only=True)
class LabelCountsFromUpdates(Attack):
    """Counts the labels a client trained on from the last layer of its update; needs no auxiliary data.

    Of each client, or each group of clients, it reads the earliest update: the less the model knows, the more
    an update must teach it.
    """

    family = "labels"
    needs = (UpdateAccess, AggregateAccess)

    def run(
        self, access: UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> LabelCounts:
        protocol = access.protocol
        head = find_head(protocol)
        counted = []
        for sent, delta, clients, sizes in _observations(access):
            gradient_scale = sum(size / sum(sizes) * protocol.recipe.effective_rate(size) for size in sizes)
            counts = count_labels(protocol.layout, head, sent, delta, gradient_scale, sum(sizes))
            counted.append(CountedLabels(clients, counts))
        return LabelCounts(tuple(counted))


def count_labels(
    layout: Layout, head: Head, sent: Tensor, delta: Tensor, gradient_scale: float, samples: int
) -> np.ndarray:
    """The label counts behind `delta` = -`gradient_scale` times the mean gradient, shape (classes,)."""
    before, change = layout.named(sent), layout.named(delta)
    g = (-change[head.bias].double() / gradient_scale).numpy()
    G = (-change[head.weight].double() / gradient_scale).numpy()
    features = G / np.where(np.abs(g) > 1e-12, g, 1e-12)[:, None]
    # Where g_j is nearly zero the quotient explodes; no class's mean feature is much longer than the others'.
    lengths = np.linalg.norm(features, axis=1, keepdims=True).clip(1e-12)
    features *= np.minimum(1, np.median(lengths) / lengths)

    # Several steps move the head while the gradients are taken; its middle position stands for all of them.
    weight = before[head.weight].double() + change[head.weight].double() / 2
    bias = before[head.bias].double() + change[head.bias].double() / 2
    P = (torch.from_numpy(features) @ weight.T + bias).softmax(-1).numpy()

    equations = np.vstack([P.T - np.eye(len(g)), np.ones(len(g))])
    if not (np.isfinite(equations).all() and np.isfinite(g).all()):
        raise CannotRun("the update of the last layer, divided by the learning rate, is not finite")
    if np.linalg.cond(equations) > WELL_CONDITIONED:
        return whole_counts(np.ones(len(g)), samples)
    shares, _ = nnls(equations, np.append(g, 1.0))
    return whole_counts(shares, samples)


def _observations(access: UpdateAccess | AggregateAccess) -> Iterator[Observation]:
    """What there is to look at, the earliest of each client or group; updates are read one by one."""
    if isinstance(access, UpdateAccess):
        updates = [(seen.sent, update) for seen in access.rounds for update in seen.updates]
        first = {update.client: (sent, update) for sent, update in reversed(updates)}
        for sent, update in reversed(first.values()):
            yield sent, update.delta, (update.client,), (update.samples,)
    else:
        sums = {seen.clients: seen for seen in reversed(access.rounds)}
        for seen in reversed(sums.values()):
            yield seen.sent, seen.mean, seen.clients, seen.sizes
