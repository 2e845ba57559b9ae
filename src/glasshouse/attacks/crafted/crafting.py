"""Crafting the models to send: a surrogate's encoder before a sorting machine, as loud as it may be."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import ServerAccess
from glasshouse.attacks.crafted.reading import Crafted, one_step
from glasshouse.attacks.crafted.rehearsal import channel_rounding, rehearsal_clients, rehearsed
from glasshouse.attacks.crafted.sorting import Sorter, class_weights, write_page
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.data.images import Images

REACH = 2.0
"""The largest entry of an update that crafted models aim at: channels cut larger ones, 8 being usual."""

HEATS = (1e-4, 1.0, 100.0, 1e4)
"""How far several local steps may move the logits by way of the second layer: what is rehearsed."""

DRIFTS = (1.0, 10.0)
"""How many bins they may move the rows' thresholds by, rehearsed with every heat."""


def craft(
    surrogate: Surrogate, access: ServerAccess, auxiliary: Images, sorter: Sorter, rng: torch.Generator
) -> Crafted:
    """Crafted models for all clients of `access`.

    Where clients take several steps, the sorting machine changes while they train: a high gain moves its
    thresholds, and with a low one the channel rounds the updates away. The gain is then the one that recovers
    most images in a rehearsal with auxiliary ones.
    """
    protocol, recipe = access.protocol, access.protocol.recipe
    linear = surrogate.cut.linear
    width = protocol.layout.named(access.current)[f"{linear[0]}.bias"].numel()
    largest = max(access.sizes)
    step = recipe.effective_rate(largest)
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
    clients = rehearsal_clients(auxiliary, access.sizes, rng)
    return max(trials, key=lambda trial: rehearsed(trial, clients)).ready()


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


def _batches(latents: Tensor, batch: int, rng: torch.Generator, count: int = 5) -> Iterator[Tensor]:
    for _ in range(count):
        yield latents[torch.randint(len(latents), (batch,), generator=rng)]
