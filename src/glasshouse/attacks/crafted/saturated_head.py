"""Exact label counts from a crafted last layer.

The server sends a network of zeros, but for one bias of the last layer, so large that the softmax is one-hot.
Zeros pass no gradient on, so nothing but these biases moves, and p - y stays what it is: the bias of every
other class c grows by lr * sum over steps t of (count of c in batch t) / (size of batch t). So the counts can
be read off after any number of local steps.

Only the last batch of an epoch is smaller than the others, and its samples weigh more. With E epochs, batches
of B and a last batch of R, the growth times B / lr is E n_c + k_c (B / R - 1), where k_c is how often class c
came last; whole numbers n_c and k_c are found by trial, and of several pairs the likeliest is taken. Where a
defence has changed the scale nothing fits, and a second probe with another class saturated gives the
proportions instead.

So the counts are exact where all batches are equally large, and close elsewhere. Of labels that clients
smooth, the share spread over all classes is taken off first. Against noise on the updates a server that knows
of it repeats its probes and takes the mean: clients count the same labels every time and draw other noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import Protocol, ServerAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.attacks.labels.head import Head, find_head
from glasshouse.defences.defence import Stack
from glasshouse.defences.perturbation import GaussianNoise, LaplacianNoise
from glasshouse.defences.private_sgd import PrivateSGD
from glasshouse.errors import reason_of
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.federation.updates import Delivery
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.labels import whole_counts
from glasshouse.options import check_flag, check_number, check_whole

NOISE = (GaussianNoise, LaplacianNoise, PrivateSGD)
"""What makes the updates of a client noisy, and not only their sum."""

TOLERANCE = 0.01
"""How far single precision may leave a solution from a whole number, or a sum from zero (relative)."""


@dataclass(frozen=True, kw_only=True)
class SaturatedHead(Attack):
    """Sends a network whose answer is fixed, so that the updates spell out the label counts.

    An `adaptive` one knows the clients' defences. Where they add noise it takes the mean of `repeats` rounds.
    """

    bias: float = 1000.0
    adaptive: bool = False
    repeats: int = 4
    family = "labels"
    needs = (ServerAccess,)

    def __post_init__(self) -> None:
        check_number("saturated-head", "bias", self.bias, 200, 1e6)
        check_flag("saturated-head", "adaptive", self.adaptive)
        check_whole("saturated-head", "repeats", self.repeats, 1, 10_000)

    @property
    def knows(self) -> tuple[str, ...]:
        return ("defence",) if self.adaptive else ()

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        return reason_of(find_head, protocol)

    def run(self, access: ServerAccess, knowledge: Knowledge, rng: torch.Generator) -> LabelCounts:
        head = find_head(access.protocol)
        rounds = self.repeats if self.adaptive and adds_noise(required(knowledge.defence)) else 1
        growth = [self._mean_growth(access, head, saturated, rounds) for saturated in (0, 1)]
        counted = []
        for clients in (clients for clients in growth[0] if clients in growth[1]):
            first, second = (grown[clients] for grown in growth)
            sizes, recipe = [access.sizes[client] for client in clients], access.protocol.recipe
            samples = sum(sizes)
            counts = decode_growth(first, recipe, samples) if len(clients) == 1 else None
            if counts is None:
                probed = [without_smoothing(grown, recipe, sizes) for grown in (first, second)]
                counts = whole_counts(combine_probes(*probed), samples)
            counted.append(CountedLabels(clients, counts))
        return LabelCounts(tuple(counted))

    def _mean_growth(
        self, access: ServerAccess, head: Head, saturated: int, rounds: int
    ) -> dict[tuple[int, ...], np.ndarray]:
        """The growth of the biases of each client, or of all that are summed, on average over `rounds`."""
        sent, everyone = self.craft(access, head, saturated), range(len(access.sizes))
        probes = [_bias_growth(access, head, access.exchange(sent, everyone)) for _ in range(rounds)]
        return {
            clients: np.mean([growth[clients] for growth in probes if clients in growth], axis=0)
            for clients in {clients: None for growth in probes for clients in growth}
        }

    def craft(self, access: ServerAccess, head: Head, saturated: int) -> Tensor:
        """A model that knows nothing and always answers `saturated`, shape (P,)."""
        vector = torch.zeros_like(access.current)
        access.protocol.layout.named(vector)[head.bias][saturated] = self.bias
        return vector


def adds_noise(stack: Stack) -> bool:
    """Whether clients add noise to what they send, other noise every time."""
    return any(isinstance(defence, NOISE) for defence in stack.defences)


def decode_growth(growth: np.ndarray, recipe: Recipe, samples: int) -> np.ndarray | None:
    """One client's exact counts from the growth of its biases with class 0 saturated, or None if none fit."""
    # Without a defence the biases' gradients, and so their growth, add up to zero.
    if abs(growth.sum()) > TOLERANCE * np.abs(growth).sum():
        return None
    if recipe.momentum or recipe.clip_grad_norm or len(set(recipe.rates(samples))) > 1:
        return None
    growth = without_smoothing(growth, recipe, [samples])
    size, rest = recipe.batch(samples), recipe.last_batch(samples)
    weight = size / rest - 1
    counts: list[int] = []
    for value in growth[1:]:
        count = _whole_solution(value * size / recipe.lr, recipe.epochs, rest, weight, samples)
        if count is None:
            return None
        counts.append(count)
    return np.array([samples - sum(counts), *counts]) if sum(counts) <= samples else None


def without_smoothing(growth: np.ndarray, recipe: Recipe, sizes: Sequence[int]) -> np.ndarray:
    """The growth of the biases without label smoothing; not of the saturated one, from which nothing is read.

    With the share s of each label spread over C classes, each step adds lr s / C to the bias of every class,
    and what the labels themselves add is 1 - s times as much.
    """
    share = recipe.label_smoothing
    if not share:
        return growth
    rate = sum(size * recipe.effective_rate(size) for size in sizes) / sum(sizes)
    return np.maximum(growth - rate * share / len(growth), 0) / (1 - share)


def _whole_solution(value: float, epochs: int, rest: int, weight: float, samples: int) -> int | None:
    """The count n with epochs * n + k * weight = value for a whole k; of several, the likeliest."""
    n = np.arange(samples + 1)
    unexplained = value - epochs * n
    k = unexplained / weight if weight else np.where(np.abs(unexplained) < TOLERANCE, 0.0, np.nan)
    possible = (np.abs(k - k.round()) < TOLERANCE) & (k > -0.5) & (k < epochs * np.minimum(rest, n) + 0.5)
    if not possible.any():
        return None
    surprise = np.abs(k - epochs * n * rest / samples)
    return int(n[possible][surprise[possible].argmin()])


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
