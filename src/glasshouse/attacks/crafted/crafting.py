"""Crafting the models to send: a surrogate's encoder before a sorting machine, as loud as it may be.

How loud that is, is rehearsed with auxiliary images and the channel itself.
"""

import dataclasses
import math
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import product

import torch
from torch import Tensor

from glasshouse.access import ServerAccess
from glasshouse.attacks.crafted.reading import CodedModels, Crafted
from glasshouse.attacks.crafted.sorting import Sorter, class_weights, sorting_model
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.attacks.inversion.updates import one_step
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.federation.channels.channel import Channel, RoundFailed
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.measures.pictures import RECOVERED, match

REACH = 2.0
"""The largest entry of an update that crafted models aim at: channels cut larger ones, 8 being usual."""

HEATS = (1e-4, 1.0, 100.0, 1e4)
"""How far several local steps may move the logits by way of the second layer: what is rehearsed."""

DRIFTS = (1.0, 10.0)
"""How many bins they may move the rows' thresholds by, rehearsed with every heat."""

REHEARSING = 2
"""As many clients take part in a rehearsal."""

SPARE = 0.8
"""The share of a norm that a rehearsed update may take: real ones differ."""


def craft(
    surrogate: Surrogate, access: ServerAccess, auxiliary: Images, sorter: Sorter, rng: torch.Generator
) -> CodedModels:
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

    def crafted(gain: float, scale: float | None = None) -> CodedModels:
        layers = map(sorter.layer, pages)
        vectors = tuple(sorting_model(surrogate, protocol.layout, rows, code, gain, scale) for rows in layers)
        unit, off = step * gain, rounding * largest
        return CodedModels(vectors, surrogate, protocol, access.sizes, sorter, unit, off)

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


def trial_delivery(channel: Channel, updates: Sequence[Update]) -> Delivery:
    """What a channel delivers of updates that nobody sent, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return channel.deliver(updates, seed=0)


def channel_rounding(channel: Channel) -> float:
    """How far a channel's quantisation throws a client's entries off, in root mean square: tried out."""
    for count in (2, 6, 20):  # more where drop-outs leave too few
        deltas = torch.rand(count, 1000, generator=torch.Generator().manual_seed(0))
        updates = [Update(client, 1, delta) for client, delta in enumerate(deltas)]
        try:
            delivery = trial_delivery(channel, updates)
        except RoundFailed:
            continue
        off = delivery.mean - deltas[list(delivery.clients)].mean(0)
        return float(off.double().square().mean().sqrt()) * math.sqrt(len(delivery.clients))
    return 0.0


def rehearsal_clients(auxiliary: Images, sizes: Sequence[int], rng: torch.Generator) -> tuple[Images, ...]:
    """Auxiliary images, divided among a few clients like the real ones."""
    order = torch.randperm(len(auxiliary), generator=rng)
    ends = torch.tensor(sizes[:REHEARSING]).cumsum(0)
    parts = order[: int(ends[-1])].tensor_split(ends[:-1])
    return tuple(auxiliary[part] for part in parts if len(part) > 1)


def rehearsed(crafted: Crafted, clients: Sequence[Images]) -> int:
    """How many images are recovered when `clients` train the middle page and send through the channel."""
    protocol, middle = crafted.protocol, len(crafted.vectors) // 2
    sent = crafted.vectors[middle]
    network = laid_out(deepcopy(protocol.architecture))
    updates = []
    for place, images in enumerate(clients):
        delta = fit(network, sent, images, protocol.recipe, seed=place) - sent
        if not delta.isfinite().all():
            return 0
        updates.append(Update(place, len(images), delta))
    try:
        delivery = trial_delivery(protocol.channel, updates)
    except RoundFailed:
        return 0
    x = torch.cat([clients[place].x for place in delivery.clients])
    latents = crafted.latents([delivery if page == middle else None for page in range(len(crafted.vectors))])
    return int((match(x, crafted.surrogate.decode(latents[: len(x)])).psnr >= RECOVERED).sum())


def quieted(crafted: CodedModels, clients: Sequence[Images], norm: float) -> CodedModels:
    """The same sorting machine with a lower gain, so that updates of `clients` have at most the L2 `norm`.

    Clients who clip to that norm then leave their updates as they are. Only the gain goes down, and with it
    the first layer's gradient, which is nearly all of an update; what is sorted and where stays as it is.
    """
    if not clients:
        raise CannotRun(
            "updates within a norm are rehearsed with two or more images on a client; there are fewer"
        )
    protocol, surrogate, sorter = crafted.protocol, crafted.surrogate, crafted.sorter
    layout, recipe = protocol.layout, protocol.recipe
    network = laid_out(deepcopy(protocol.architecture))
    pairs = product(clients, crafted.vectors)
    deltas = (fit(network, sent, images, recipe, seed=0) - sent for images, sent in pairs)
    longest = max(float(delta[: layout.trainable].norm()) for delta in deltas)
    if longest <= SPARE * norm:
        return crafted
    factor = SPARE * norm / longest
    first = f"{surrogate.cut.linear[0]}.weight"
    gain = factor * crafted.unit / (recipe.lr * recipe.epochs)
    vectors = []
    for page, sent in zip(sorter.pages(len(layout.named(surrogate.vector)[first])), crafted.vectors):
        rows = sorter.layer(page)
        scale = float(layout.named(sent)[first][0].norm() / rows[0][0].norm())
        vectors.append(sorting_model(surrogate, layout, rows, crafted.code, gain, scale))
    return dataclasses.replace(crafted, vectors=tuple(vectors), unit=factor * crafted.unit)
