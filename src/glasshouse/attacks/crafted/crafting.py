"""The crafted model: a surrogate's encoder before a sorting machine, and how to read what it sorted."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshouse.access import Protocol, ServerAccess
from glasshouse.attacks.crafted.leakage import Law
from glasshouse.attacks.crafted.peeling import peel
from glasshouse.attacks.crafted.sorting import Sorter, class_weights, make_sorter, write_sorter
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.federation.updates import Delivery
from glasshouse.learning.recipe import Recipe

REACH = 4.0
"""The largest entry of an update that crafted models aim at: channels cut larger ones, 8 being usual."""

EMPTY = 0.02
"""A bin holds nobody if its weight is below this share of a sample's; opposite samples leave 0.06 or more."""

TILT = 1e-3
SINGLES = 0.01
"""The share of lone samples that may be taken for mixtures because they have few zeros."""


@dataclass(frozen=True, eq=False)
class Crafted:
    """A model to send, shape (P,): a sample of weight 1 moves the biases of its rows by `unit` / samples."""

    vector: Tensor
    surrogate: Surrogate
    sorter: Sorter
    protocol: Protocol
    unit: float

    def latents(self, delivery: Delivery) -> Tensor:
        """Latents from the clients' summed updates, the surest first, shape (n, d)."""
        named = self.protocol.layout.named(delivery.mean)
        first = self.surrogate.cut.linear[0]
        unit = self.unit / delivery.samples
        weight, bias = named[f"{first}.weight"], named[f"{first}.bias"]
        noise = _noise(weight, bias, EMPTY * unit)

        def alone(latents: Tensor, weights: Tensor) -> Tensor:
            sized = self._sized(weights / unit)
            return sized & self._rectified(latents, noise / weights.abs())

        peeled = peel(weight, bias, self.sorter, EMPTY * unit, alone)
        found = torch.cat([peeled.alone, peeled.mixed])
        return found.clamp_min(0) if self.surrogate.rectified else found

    def _sized(self, weights: Tensor) -> Tensor:
        """Whether weights are those of a single sample; only one step on all data keeps them exact."""
        if not one_step(self.protocol.recipe):
            return torch.ones_like(weights, dtype=torch.bool)
        known = class_weights(self.protocol.classes)[0]
        gaps = (weights[:, None] - known).abs().amin(1)
        return gaps < 0.1

    def _rectified(self, latents: Tensor, noise: Tensor) -> Tensor:
        """Whether latents, shape (n, d), look like those of one image: many zeros and nothing below.

        `noise` is the standard deviation of their entries, shape (n,).
        """
        if not self.surrogate.rectified:
            return torch.ones(len(latents), dtype=torch.bool)
        live = latents[:, self._live]
        slack = 4 * noise[:, None] + 1e-3 * self.surrogate.latents.max()
        below = (live < -slack).double().mean(1)
        zeros = (live.abs() <= slack).double().mean(1)
        return (below < 0.005) & (zeros >= self._fewest_zeros)

    @cached_property
    def _live(self) -> Tensor:
        return self.surrogate.latents.amax(0) > 0

    @cached_property
    def _fewest_zeros(self) -> float:
        zeros = (self.surrogate.latents[:, self._live] == 0).double().mean(1)
        return float(zeros.quantile(SINGLES))


def craft(
    surrogate: Surrogate, access: ServerAccess, directions: int, law: Law, rng: torch.Generator
) -> Crafted:
    """A crafted model for all clients of `access`."""
    protocol = access.protocol
    first = surrogate.cut.linear[0]
    rows = protocol.layout.named(access.current)[f"{first}.bias"].numel()
    sorter = make_sorter(surrogate.latents, rows, directions, law)
    recipe = protocol.recipe
    batch = recipe.batch(max(access.sizes))
    gain = REACH / (recipe.lr * loudest(surrogate, sorter, batch, protocol.classes, rng))
    vector = surrogate.vector.clone()
    write_sorter(protocol.layout.named(vector), surrogate.cut.linear, sorter, gain, TILT)
    return Crafted(vector, surrogate, sorter, protocol, recipe.lr * gain)


def loudest(surrogate: Surrogate, sorter: Sorter, batch: int, classes: int, rng: torch.Generator) -> float:
    """The largest entry of the first layer's gradient, at gain 1, on batches like the clients'."""
    weights = class_weights(classes)[0]
    largest = 0.0
    for latents in _batches(surrogate.latents, batch, rng):
        drawn = weights[torch.randint(classes, (len(latents), 1), generator=rng)]
        for direction in sorter.directions:
            order = (latents.double() @ direction).argsort(descending=True)
            rows = (drawn * torch.cat([latents, torch.ones(len(latents), 1)], 1))[order].cumsum(0)
            largest = max(largest, float(rows.abs().max()) / len(latents))
    return largest


def one_step(recipe: Recipe) -> bool:
    """Whether clients take a single step on all of their data."""
    return recipe.epochs == 1 and recipe.batch_size == 0


def _batches(latents: Tensor, batch: int, rng: torch.Generator, count: int = 5) -> Iterator[Tensor]:
    for _ in range(count):
        yield latents[torch.randint(len(latents), (batch,), generator=rng)]


def _noise(weight: Tensor, bias: Tensor, empty: float) -> float:
    """How much the entries of the rows' differences stray where nobody is, in root mean square."""
    nobody = bias.diff().abs() <= empty
    if not nobody.any():
        return 0.0
    strays = weight.diff(dim=0)[nobody].double().square().mean(1).sqrt()
    return float(strays.median())
