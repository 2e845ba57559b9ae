"""Rehearsals with auxiliary images: what a crafted model recovers, and how long updates are."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from itertools import product

import torch

from glasshouse.attacks.crafted.reading import Crafted
from glasshouse.attacks.crafted.sorting import sorting_model
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.federation.channels.channel import Channel, RoundFailed
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.measures.pictures import RECOVERED, match

REHEARSING = 2
"""As many clients take part in a rehearsal."""

SPARE = 0.8
"""The share of a norm that a rehearsed update may take: real ones differ."""


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


def quieted(crafted: Crafted, clients: Sequence[Images], norm: float) -> Crafted:
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
