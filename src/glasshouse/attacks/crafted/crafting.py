"""Crafting the models to send: a surrogate's encoder before a sorting machine, as loud as it may be."""

import math
from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from glasshouse.access import ServerAccess
from glasshouse.attacks.crafted.reading import Crafted, one_step
from glasshouse.attacks.crafted.rehearsal import channel_rounding, rehearsal_clients, rehearsed
from glasshouse.attacks.crafted.sorting import Sorter, class_weights, sorting_model
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
        layers = map(sorter.layer, pages)
        vectors = tuple(sorting_model(surrogate, protocol.layout, rows, code, gain, scale) for rows in layers)
        return Crafted(vectors, surrogate, sorter, protocol, access.sizes, step * gain, rounding * largest)

    loud = REACH / (step * loudness)
    if steady:
        return crafted(loud).ready()
    between = protocol.layout.named(access.current)[f"{linear[-1]}.weight"].shape[1]
    gains = _gains(surrogate, sorter, step, between if len(linear) > 2 else 1, loud)
    trials = [crafted(gain, scale) for gain, scale in gains]
    clients = rehearsal_clients(auxiliary, access.sizes, rng)
    return max(trials, key=lambda trial: rehearsed(trial, clients)).ready()


def _gains(
    surrogate: Surrogate, sorter: Sorter, step: float, between: int, loudest: float
) -> Iterator[tuple[float, float]]:
    """Gains, up to `loudest`, and scales to rehearse, for learning rates that add up to `step`.

    Several steps heat the logits, at rows and columns of gain 1, with `between` neurons between both, and let
    thresholds drift. The heat grows with the square of the scale, the drift with the gain over the scale.
    """
    spans = [float(cut[-1] - cut[1]) for cut in sorter.cuts]
    widths = [span / len(cut) for cut, span in zip(sorter.cuts, spans)]
    lengths = float(surrogate.latents.double().square().sum(1).mean())
    heat = step * sum(len(cut) * span**2 for cut, span in zip(sorter.cuts, spans)) / between
    drift = step * (lengths + 1) / max(min(widths), 1e-12)
    for most_heat, most_drift in product(HEATS, DRIFTS):
        scale = math.sqrt(most_heat / heat)
        yield min(loudest, most_drift * scale / drift), scale


def loudest(surrogate: Surrogate, sorter: Sorter, batch: int, weights: Tensor, rng: torch.Generator) -> float:
    """The largest entry of the first layer's gradient, at gain 1, on batches like the clients'."""
    largest = 0.0
    for _ in range(5):
        latents = surrogate.latents[torch.randint(len(surrogate.latents), (batch,), generator=rng)]
        drawn = weights[torch.randint(len(weights), (len(latents), 1), generator=rng)]
        for direction in sorter.directions:
            order = (latents.double() @ direction).argsort(descending=True)
            rows = (drawn * torch.cat([latents, torch.ones(len(latents), 1)], 1))[order].cumsum(0)
            largest = max(largest, float(rows.abs().max()) / len(latents))
    return largest
