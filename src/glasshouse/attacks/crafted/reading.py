"""Crafted models, and how to read from the updates what they sorted."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshouse.access import Protocol
from glasshouse.attacks.crafted.leakage import signs
from glasshouse.attacks.crafted.peeling import Criteria, peel
from glasshouse.attacks.crafted.sorting import Sorter, class_weights
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.attacks.inversion.updates import mean_decay, one_step
from glasshouse.federation.updates import Delivery

TOLERANCE = 0.02
"""How far a bin's weight may be from that of a lone sample."""

EMPTY = 0.02
"""A bin is empty if its weight is below this share of a sample's; opposite samples leave 0.06 or more."""

SINGLES = 0.01
"""The share of lone samples that may be taken for mixtures because they look unusual."""

SINGLES_SEEN = 2000


@dataclass(frozen=True, eq=False)
class Crafted(ABC):
    """Models to send to clients with `sizes` images, one for each round, shape (P,)."""

    vectors: tuple[Tensor, ...]
    surrogate: Surrogate
    protocol: Protocol
    sizes: tuple[int, ...]

    @abstractmethod
    def latents(self, deliveries: list[Delivery | None]) -> Tensor:
        """Latents from the clients' summed updates, the surest first, shape (n, d).

        Takes what each round delivered; a round may be missing.
        """

    def moved(self, sent: Tensor, delivery: Delivery) -> tuple[Tensor, Tensor]:
        """What the gradients moved the first linear layer's weights, (k, d), and biases, (k,), by."""
        first = self.surrogate.cut.linear[0]
        decay = mean_decay(self.protocol, sent, [self.sizes[client] for client in delivery.clients])
        moved = self.protocol.layout.named(delivery.mean - decay)
        return moved[f"{first}.weight"].double(), moved[f"{first}.bias"].double()


@dataclass(frozen=True, eq=False)
class CodedModels(Crafted):
    """Models whose rows sort latents as `sorter` says, and weigh samples by their class.

    A sample of loss weight 1 moves the biases of its rows by `unit` over the number of samples. The channel
    throws the entries of each client's sum over its samples off by `rounding`, in root mean square.
    """

    sorter: Sorter
    unit: float
    rounding: float

    @property
    def steady(self) -> bool:
        """Whether clients take a single step, which keeps the weights of all samples exact."""
        return one_step(self.protocol.recipe, self.sizes)

    @property
    def code(self) -> tuple[Tensor, Tensor]:
        """The classes' weights and probabilities."""
        return class_weights(self.protocol.classes, alone=self.steady and len(self.sorter.cuts) == 1)

    def latents(self, deliveries: list[Delivery | None]) -> Tensor:
        first = self.surrogate.cut.linear[0]
        width = self.protocol.layout.named(self.vectors[0])[f"{first}.bias"].numel()
        sums = torch.zeros(len(self.sorter.closing), self.surrogate.latents.shape[1], dtype=torch.double)
        weights = torch.zeros(len(sums), dtype=torch.double)
        for page, sent, delivery in zip(self.sorter.pages(width), self.vectors, deliveries):
            if delivery is None:
                continue
            scale = signs(len(page)) * (delivery.samples / self.unit)
            weight, bias = (part[: len(page)] for part in self.moved(sent, delivery))
            bins, page_sums, page_weights = self.sorter.read(page, weight * scale[:, None], bias * scale)
            sums[bins], weights[bins] = page_sums, page_weights
        most = max(len(delivery.clients) for delivery in deliveries if delivery is not None)
        rounding = math.sqrt(2 * most) * self.rounding / self.unit
        noise = max(_noise(sums, weights), rounding)

        def alone(latents: Tensor, weights: Tensor) -> Tensor:
            return self._sized(weights) & self._plausible(latents, noise / weights.abs())

        latents = peel(sums, weights, self.sorter, Criteria(alone, self._usual[0], noise, EMPTY))
        return latents.clamp_min(0) if self.surrogate.rectified else latents

    def _sized(self, weights: Tensor) -> Tensor:
        """Whether weights are those of a single sample; only one step on all data keeps them exact."""
        if not self.steady:
            return torch.ones_like(weights, dtype=torch.bool)
        return (weights[:, None] - self.code[0]).abs().amin(1) < TOLERANCE

    def _plausible(self, latents: Tensor, noise: Tensor) -> Tensor:
        """Whether latents, shape (n, d), look like one image; `noise` is that of their entries, shape (n,).

        Mixtures of samples of either sign go further afield than single ones, and below zero where a ReLU
        allows none. Those of one sign have fewer zeros, which matters where the weights say nothing.
        """
        if not self.surrogate.rectified:
            return self._strays(latents, noise) <= self._most_strays
        live = latents[:, self._live]
        slack = 4 * noise[:, None] + 1e-3 * self._largest
        fine = (live < -slack).double().mean(1) < 0.005
        if self.steady:
            return fine
        return fine & ((live.abs() <= slack).double().mean(1) >= self._fewest_zeros)

    def _strays(self, latents: Tensor, noise: Tensor) -> Tensor:
        """The share of entries more than three standard deviations from the mean of auxiliary ones, (n,)."""
        mean, spread = self._usual
        return ((latents - mean).abs() > 3 * spread + 4 * noise[:, None]).double().mean(1)

    @cached_property
    def _usual(self) -> tuple[Tensor, Tensor]:
        spread, mean = torch.std_mean(self.surrogate.latents.double(), 0)
        return mean, spread

    @cached_property
    def _most_strays(self) -> float:
        latents = self.surrogate.latents[:SINGLES_SEEN].double()
        return float(self._strays(latents, torch.zeros(len(latents))).quantile(1 - SINGLES / 10))

    def ready(self) -> "CodedModels":
        """Itself, with all that reading an update needs worked out beforehand."""
        _ = self._most_strays, self._largest, self._live, self._fewest_zeros
        return self

    @cached_property
    def _largest(self) -> float:
        return float(self.surrogate.latents.max())

    @cached_property
    def _live(self) -> Tensor:
        return self.surrogate.latents.amax(0) > 0

    @cached_property
    def _fewest_zeros(self) -> float:
        zeros = (self.surrogate.latents[:, self._live] == 0).double().mean(1)
        return float(zeros.quantile(SINGLES))


def _noise(sums: Tensor, weights: Tensor) -> float:
    """How far the entries of empty bins are from zero, in root mean square."""
    empty = weights.abs() <= EMPTY
    return float(sums[empty].square().mean(1).sqrt().median()) if empty.any() else 0.0
