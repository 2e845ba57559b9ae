"""The crafted model: a surrogate's encoder before a sorting machine, and how to read what it sorted."""

import math
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshouse.access import Protocol, ServerAccess
from glasshouse.attacks.crafted.peeling import Signs, peel
from glasshouse.attacks.crafted.sorting import Sorter, class_weights, signs, write_page
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.attacks.inversion.updates import mean_decay
from glasshouse.attacks.labels.counts import effective_lr
from glasshouse.data.images import Images
from glasshouse.federation.channels.channel import Channel, RoundFailed
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import RECOVERED, match

REACH = 2.0
"""The largest entry of an update that crafted models aim at: channels cut larger ones, 8 being usual."""

TOLERANCE = 0.02
"""How far a bin's weight may be from that of a lone sample."""

EMPTY = 0.02
"""A bin holds nobody if its weight is below this share of a sample's; opposite samples leave 0.06 or more."""

REHEARSING = 2
"""Clients that a rehearsal is played with."""

HEATS = (1e-4, 1.0, 100.0, 1e4)
"""How far several local steps may move the logits by way of the second layer, ..."""

DRIFTS = (1.0, 10.0)
"""... and the rows' thresholds, in bins: what is rehearsed."""

SINGLES = 0.01
"""The share of lone samples that may be taken for mixtures because they look unusual."""

SINGLES_SEEN = 2000


@dataclass(frozen=True, eq=False)
class Crafted:
    """Models to send, one for each round, shape (P,).

    A sample of loss weight 1 moves the biases of its rows by `unit` over the number of samples. The channel
    throws the entries of each client's sum over its samples off by `rounding`, in root mean square.
    """

    vectors: tuple[Tensor, ...]
    surrogate: Surrogate
    sorter: Sorter
    protocol: Protocol
    sizes: tuple[int, ...]
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

    def latents(self, deliveries: Sequence[Delivery | None]) -> Tensor:
        """Latents from the clients' summed updates, the surest first, shape (n, d).

        Takes what each round delivered; a round may be missing.
        """
        first = self.surrogate.cut.linear[0]
        width = self.protocol.layout.named(self.vectors[0])[f"{first}.bias"].numel()
        sums = torch.zeros(len(self.sorter.closing), self.surrogate.latents.shape[1], dtype=torch.double)
        weights = torch.zeros(len(sums), dtype=torch.double)
        for page, sent, delivery in zip(self.sorter.pages(width), self.vectors, deliveries):
            if delivery is None:
                continue
            decay = mean_decay(self.protocol, sent, [self.sizes[client] for client in delivery.clients])
            moved = self.protocol.layout.named(delivery.mean - decay)
            scale = signs(len(page)) * (delivery.samples / self.unit)
            weight, bias = (moved[f"{first}.{part}"][: len(page)].double() for part in ("weight", "bias"))
            bins, page_sums, page_weights = self.sorter.read(page, weight * scale[:, None], bias * scale)
            sums[bins], weights[bins] = page_sums, page_weights
        arrived = [delivery for delivery in deliveries if delivery is not None]
        rounding = max(math.sqrt(2 * len(each.clients)) for each in arrived) * self.rounding / self.unit
        noise = max(_noise(sums, weights), rounding)

        def alone(latents: Tensor, own: Tensor) -> Tensor:
            return self._sized(own) & self._plausible(latents, noise / own.abs())

        known = Signs(alone, self._usual[0], noise, EMPTY)
        peeled = peel(sums, weights, self.sorter, known)
        found = torch.cat([peeled.alone, peeled.mixed])
        return found.clamp_min(0) if self.surrogate.rectified else found

    def _sized(self, weights: Tensor) -> Tensor:
        """Whether weights are those of a single sample; only one step on all data keeps them exact."""
        if not self.steady:
            return torch.ones_like(weights, dtype=torch.bool)
        gaps = (weights[:, None] - self.code[0]).abs().amin(1)
        return gaps < TOLERANCE

    def _plausible(self, latents: Tensor, noise: Tensor) -> Tensor:
        """Whether latents, shape (n, d), look like one image; `noise` is that of their entries, shape (n,).

        Mixtures of samples of either sign go further afield than single ones, and below zero where a ReLU
        allows none. Those of one sign have fewer zeros, which matters where the weights do not tell.
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

    def ready(self) -> "Crafted":
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


def craft(
    surrogate: Surrogate, access: ServerAccess, auxiliary: Images, sorter: Sorter, rng: torch.Generator
) -> Crafted:
    """Crafted models for all clients of `access`.

    Where clients take several steps, the sorting machine changes under their hands: too loud, and it forgets
    its thresholds; too quiet, and the channel rounds it away. Which gain serves best is then rehearsed with
    auxiliary images.
    """
    protocol, recipe = access.protocol, access.protocol.recipe
    linear = surrogate.cut.linear
    width = protocol.layout.named(access.current)[f"{linear[0]}.bias"].numel()
    largest = max(access.sizes)
    step = effective_lr(recipe, largest)
    pages = sorter.pages(width)
    steady = one_step(recipe, access.sizes)
    code = class_weights(protocol.classes, alone=steady and len(sorter.cuts) == 1)
    loudness = loudest(surrogate, sorter, recipe.batch(largest), code[0], rng)
    rounding = channel_rounding(protocol.channel)

    def crafted(gain: float, scale: float | None = None) -> Crafted:
        vectors = []
        for page in pages:
            vector = surrogate.vector.clone()
            named = protocol.layout.named(vector)
            write_page(named, linear, sorter.layer(page), code, surrogate.latents, gain, scale)
            vectors.append(vector)
        unit = step * gain
        return Crafted(tuple(vectors), surrogate, sorter, protocol, access.sizes, unit, rounding * largest)

    loud = REACH / (step * loudness)
    if steady:
        return crafted(loud).ready()
    between = protocol.layout.named(access.current)[f"{linear[-1]}.weight"].shape[1]
    bounds = Steadiness.of(surrogate, sorter, step, between if len(linear) > 2 else 1)
    trials = [crafted(*bounds.gains(heat, drift, loud)) for heat in HEATS for drift in DRIFTS]
    cast = rehearsal_cast(auxiliary, access.sizes, rng)
    return max(trials, key=lambda trial: rehearsed(trial, cast)).ready()


@dataclass(frozen=True)
class Steadiness:
    """What several local steps do to a sorting machine: `heat` to the logits, `drift` to the thresholds.

    Both at rows and columns of gain 1, to be scaled by the square of the one and the quotient of the two.
    """

    heat: float
    drift: float

    @classmethod
    def of(cls, surrogate: Surrogate, sorter: Sorter, step: float, between: int) -> "Steadiness":
        """For learning rates that add up to `step`, and `between` neurons between the rows and the logits."""
        spans = [float(cut[-1] - cut[1]) for cut in sorter.cuts]
        widths = [span / len(cut) for cut, span in zip(sorter.cuts, spans)]
        lengths = float(surrogate.latents.double().square().sum(1).mean())
        heat = step * sum(len(cut) * span**2 for cut, span in zip(sorter.cuts, spans)) / between
        return cls(heat, step * (lengths + 1) / max(min(widths), 1e-12))

    def gains(self, heat: float, drift: float, loudest: float) -> tuple[float, float]:
        """Gain and scale that keep to these bounds."""
        scale = math.sqrt(heat / self.heat)
        return min(loudest, drift * scale / self.drift), scale


def loudest(surrogate: Surrogate, sorter: Sorter, batch: int, weights: Tensor, rng: torch.Generator) -> float:
    """The largest entry of the first layer's gradient, at gain 1, on batches like the clients'."""
    largest = 0.0
    for latents in _batches(surrogate.latents, batch, rng):
        drawn = weights[torch.randint(len(weights), (len(latents), 1), generator=rng)]
        for direction in sorter.directions:
            order = (latents.double() @ direction).argsort(descending=True)
            rows = (drawn * torch.cat([latents, torch.ones(len(latents), 1)], 1))[order].cumsum(0)
            largest = max(largest, float(rows.abs().max()) / len(latents))
    return largest


def tried(channel: Channel, updates: Sequence[Update]) -> Delivery:
    """What a channel makes of updates that nobody sent: of these it need not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return channel.deliver(updates, seed=0)


def channel_rounding(channel: Channel) -> float:
    """How far a channel's quantisation throws a client's entries off, in root mean square: tried out."""
    for count in (2, 6, 20):  # more where drop-outs leave too few
        deltas = torch.rand(count, 1000, generator=torch.Generator().manual_seed(0))
        updates = [Update(client, 1, delta) for client, delta in enumerate(deltas)]
        try:
            delivery = tried(channel, updates)
        except RoundFailed:
            continue
        off = delivery.mean - deltas[list(delivery.clients)].mean(0)
        return float(off.double().square().mean().sqrt()) * math.sqrt(len(delivery.clients))
    return 0.0


def rehearsal_cast(auxiliary: Images, sizes: Sequence[int], rng: torch.Generator) -> tuple[Images, ...]:
    """Auxiliary images in the hands of a few clients like the real ones."""
    order = torch.randperm(len(auxiliary), generator=rng)
    ends = torch.tensor(sizes[:REHEARSING]).cumsum(0)
    parts = order[: int(ends[-1])].tensor_split(ends[:-1])
    return tuple(auxiliary[part] for part in parts if len(part) > 1)


def rehearsed(crafted: Crafted, cast: Sequence[Images]) -> int:
    """How many images are recovered when the cast trains the middle page and sends through the channel."""
    protocol, middle = crafted.protocol, len(crafted.vectors) // 2
    sent = crafted.vectors[middle]
    network = laid_out(deepcopy(protocol.architecture))
    updates = []
    for place, images in enumerate(cast):
        delta = fit(network, sent, images, protocol.recipe, seed=place) - sent
        if not delta.isfinite().all():
            return 0
        updates.append(Update(place, len(images), delta))
    try:
        delivery = tried(protocol.channel, updates)
    except RoundFailed:
        return 0
    x = torch.cat([cast[place].x for place in delivery.clients])
    latents = crafted.latents([delivery if page == middle else None for page in range(len(crafted.vectors))])
    return int((match(x, crafted.surrogate.decode(latents[: len(x)])).psnr >= RECOVERED).sum())


def one_step(recipe: Recipe, sizes: Sequence[int]) -> bool:
    """Whether clients with these sample counts take a single step on all of their data."""
    return all(recipe.total_steps(size) == 1 for size in sizes)


def _batches(latents: Tensor, batch: int, rng: torch.Generator, count: int = 5) -> Iterator[Tensor]:
    for _ in range(count):
        yield latents[torch.randint(len(latents), (batch,), generator=rng)]


def _noise(sums: Tensor, weights: Tensor) -> float:
    """How far the entries of bins stray where nobody is, in root mean square."""
    nobody = weights.abs() <= EMPTY
    return float(sums[nobody].square().mean(1).sqrt().median()) if nobody.any() else 0.0
