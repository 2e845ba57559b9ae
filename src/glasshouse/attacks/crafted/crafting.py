"""The crafted model: a surrogate's encoder before a sorting machine, and how to read what it sorted."""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshouse.access import Protocol, ServerAccess
from glasshouse.attacks.crafted.leakage import Law
from glasshouse.attacks.crafted.peeling import peel
from glasshouse.attacks.crafted.sorting import Sorter, class_weights, make_sorter, write_sorter
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.data.images import Images
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import match

REACH = 4.0
"""The largest entry of an update that crafted models aim at: channels cut larger ones, 8 being usual."""

EMPTY = 0.02
"""A bin holds nobody if its weight is below this share of a sample's; opposite samples leave 0.06 or more."""

REHEARSING = 4
"""Clients that a rehearsal is played with."""

TILT = 1e-3
"""How far crafted models let the logits move where clients take a single step, ..."""

TILTS = (1e-2, 1.0)
QUIETER = (1.0, 10.0, 100.0, 1000.0)
"""... and where they take several: what is rehearsed, with gains below the loudest by these factors."""

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
        signs = self.sorter.signs
        weight, bias = named[f"{first}.weight"] * signs[:, None], named[f"{first}.bias"] * signs
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
    surrogate: Surrogate,
    access: ServerAccess,
    auxiliary: Images,
    directions: int,
    law: Law,
    rng: torch.Generator,
) -> Crafted:
    """A crafted model for all clients of `access`.

    Where clients take several steps, the sorting machine changes under their hands: too loud, and it forgets
    its thresholds; too quiet, and the channel rounds it away. Which gain serves best is then rehearsed with
    auxiliary images.
    """
    protocol = access.protocol
    first = surrogate.cut.linear[0]
    rows = protocol.layout.named(access.current)[f"{first}.bias"].numel()
    sorter = make_sorter(surrogate.latents, rows, directions, law)
    recipe = protocol.recipe
    largest = max(access.sizes)
    loudness = loudest(surrogate, sorter, recipe.batch(largest), protocol.classes, rng)
    step = recipe.lr * recipe.epochs * largest / recipe.batch(largest)

    def crafted(gain: float, tilt: float) -> Crafted:
        vector = surrogate.vector.clone()
        named = protocol.layout.named(vector)
        write_sorter(named, surrogate.cut.linear, sorter, surrogate.latents, gain, tilt)
        return Crafted(vector, surrogate, sorter, protocol, step * gain)

    gain = REACH / (step * loudness)
    if one_step(recipe):
        return crafted(gain, TILT)
    trials = [crafted(gain / quieter, tilt) for quieter in QUIETER for tilt in TILTS]
    cast = rehearsal_cast(auxiliary, access.sizes, rng)
    return max(trials, key=lambda trial: rehearsed(trial, cast))


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


def rehearsal_cast(auxiliary: Images, sizes: Sequence[int], rng: torch.Generator) -> tuple[Images, ...]:
    """Auxiliary images in the hands of a few clients like the real ones."""
    order = torch.randperm(len(auxiliary), generator=rng)
    ends = torch.tensor(sizes[:REHEARSING]).cumsum(0)
    parts = order[: int(ends[-1])].tensor_split(ends[:-1])
    return tuple(auxiliary[part] for part in parts if len(part) > 1)


def rehearsed(crafted: Crafted, cast: Sequence[Images]) -> float:
    """The mean PSNR that `crafted` reaches, in dB, when the cast trains it and sends through the channel."""
    protocol = crafted.protocol
    network = laid_out(deepcopy(protocol.architecture))
    updates = []
    for place, images in enumerate(cast):
        trained = fit(network, crafted.vector, images, protocol.recipe, seed=place)
        updates.append(Update(place, len(images), trained - crafted.vector))
    if not all(update.delta.isfinite().all() for update in updates):
        return -math.inf
    try:
        delivery = protocol.channel.deliver(updates, seed=0)
    except RoundFailed:
        return -math.inf
    x = torch.cat([cast[place].x for place in delivery.clients])
    rebuilt = crafted.surrogate.decode(crafted.latents(delivery)[: len(x)])
    return float(match(x, rebuilt).psnr.mean())


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
