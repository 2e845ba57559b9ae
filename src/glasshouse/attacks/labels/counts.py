"""Label counts from the last layer's update, by the linear system of Ma et al. (2023), "iLRG".

With cross-entropy the head's bias gradient is g_j = mean_i (p_ij - [y_i = j]) and its weight gradient
G_j = mean_i (p_ij - [y_i = j]) h_i, so G_j / g_j is close to the mean feature of class j. Its prediction P_j
stands for the predictions of the class, and the counts n solve  sum_c n_c (P_cj - [c = j]) = N g_j  with
sum_c n_c = N. The system is exact when the predictions within a class agree, as they do for one sample each.
Where the share s of each label is spread over C classes, (1 - s) [c = j] + s / C takes the place of [c = j].
Mix-up within a batch leaves the sum of its targets as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from glasshouse.access import AggregateAccess, Protocol, UpdateAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.inversion.updates import check_scale
from glasshouse.attacks.labels.head import Head, find_head
from glasshouse.errors import CannotRun, reason_of
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.learning.layout import Layout
from glasshouse.measures.labels import whole_counts

WELL_CONDITIONED = 10.0
"""Up to this condition number the system determines the counts.

It is 3 for a model that knows nothing and grows as predictions come to resemble labels, in long local
training above all. Beyond it whole counts stand only where they explain one step by themselves; else the
attack has nothing better to say than that all classes are equally frequent.
"""

EXPLAINED = 0.1
"""Whole counts explain the last layer where they leave less than this share of its gradient unexplained."""

Observation = tuple[int, Tensor, Tensor, tuple[int, ...], tuple[int, ...]]
"""The number of the round, the model sent, its change, whose samples are in it, and how many each has."""


@dataclass(frozen=True, kw_only=True)
class LabelCountsFromUpdates(Attack):
    """Counts the labels a client trained on from the last layer of its update; needs no auxiliary data.

    Of each client, or each group of clients, it reads the earliest update: the less the model knows, the more
    an update must teach it.
    """

    family = "labels"
    needs = (UpdateAccess, AggregateAccess)

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        return reason_of(check_scale, protocol.recipe) or reason_of(find_head, protocol)

    def run(
        self, access: UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> LabelCounts:
        protocol = access.protocol
        head = find_head(protocol)
        counted = []
        for number, sent, delta, clients, sizes in _observations(access):
            recipe = protocol.recipe.in_round(number)
            gradient_scale = sum(size / sum(sizes) * recipe.effective_rate(size) for size in sizes)
            steps = max(map(protocol.recipe.total_steps, sizes))
            counts = count_labels(
                protocol.layout,
                head,
                sent,
                delta,
                gradient_scale,
                sum(sizes),
                steps,
                protocol.recipe.label_smoothing,
            )
            counted.append(CountedLabels(clients, counts))
        return LabelCounts(tuple(counted))


def count_labels(
    layout: Layout,
    head: Head,
    sent: Tensor,
    delta: Tensor,
    gradient_scale: float,
    samples: int,
    steps: int,
    smoothing: float = 0.0,
) -> np.ndarray:
    """The label counts behind `delta` = -`gradient_scale` times the mean gradient, shape (classes,)."""
    moved = layout.named(delta)[head.bias].double().numpy()
    if not moved.any() and delta.any():  # a defence held the biases back, and nothing tells one class apart
        return whole_counts(np.ones(len(moved)), samples)
    # Several steps move the head while the gradients are taken; its middle position stands for all of them.
    equations = label_equations(layout, head, sent if steps == 1 else sent + delta / 2, delta, smoothing)
    with np.errstate(all="ignore"):  # what is not finite is refused as such
        g = -moved / gradient_scale
    if not (np.isfinite(equations).all() and np.isfinite(g).all()):
        raise CannotRun("the update of the last layer, divided by the learning rate, is not finite")
    counts = whole_counts(label_shares(equations, g), samples)
    sure = np.linalg.cond(equations) <= WELL_CONDITIONED
    if not sure and (steps > 1 or unexplained(equations, counts, g) >= EXPLAINED):
        return whole_counts(np.ones(len(g)), samples)
    return counts


def unexplained(equations: np.ndarray, counts: np.ndarray, g: np.ndarray) -> float:
    """The share of the head's bias gradient `g` that whole counts leave."""
    left = equations[:-1] @ (counts / counts.sum()) - g
    return float(np.linalg.norm(left)) / max(float(np.linalg.norm(g)), 1e-300)


def label_equations(
    layout: Layout, head: Head, weights: Tensor, change: Tensor, smoothing: float = 0.0
) -> np.ndarray:
    """The system's left side, shape (classes + 1, classes), for a head that has these `weights`.

    The clients spread the share `smoothing` of each label over all classes. The system follows from the
    quotients of the head's `change`, and so not from the scale or sign of that; it is not finite where these
    are not.
    """
    at, changed = layout.named(weights), layout.named(change)
    g, G = changed[head.bias].double().numpy(), changed[head.weight].double().numpy()
    least = 1e-12 * max(np.abs(g).max(), 1e-300)
    with np.errstate(over="ignore", invalid="ignore"):
        features = G / np.where(np.abs(g) > least, g, least)[:, None]
        # Where g_j is nearly zero the quotient explodes; no class's mean feature is much longer than the
        # others'.
        lengths = np.linalg.norm(features, axis=1, keepdims=True).clip(1e-12)
        features *= np.minimum(1, np.median(lengths) / lengths)
    logits = torch.from_numpy(features) @ at[head.weight].double().T + at[head.bias].double()
    P = logits.softmax(-1).numpy()
    targets = (1 - smoothing) * np.eye(len(g)) + smoothing / len(g)
    return np.vstack([P.T - targets, np.ones(len(g))])


def label_shares(equations: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The share of each class, shape (classes,), that explains the head's bias gradient `g` best."""
    shares, _ = nnls(equations, np.append(g, 1.0))
    return np.asarray(shares)


def _observations(access: UpdateAccess | AggregateAccess) -> Iterator[Observation]:
    """What there is to look at, the earliest of each client or group; updates are read one by one."""
    if isinstance(access, UpdateAccess):
        updates = [(seen, update) for seen in access.rounds for update in seen.updates]
        first = {update.client: (seen, update) for seen, update in reversed(updates)}
        for seen, update in reversed(first.values()):
            yield seen.number, seen.sent, update.delta, (update.client,), (update.samples,)
    else:
        sums = {seen.clients: seen for seen in reversed(access.rounds)}
        for summed in reversed(sums.values()):
            yield summed.number, summed.sent, summed.average, summed.clients, summed.sizes
