"""Staying within a norm: a gain so low that clients who clip their updates leave them as they are."""

import dataclasses
from collections.abc import Sequence
from copy import deepcopy

from glasshouse.attacks.crafted.reading import Crafted
from glasshouse.attacks.crafted.sorting import write_page
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit

SPARE = 0.8
"""The share of the norm that a rehearsed update may take: real ones differ."""


def quieted(crafted: Crafted, clients: Sequence[Images], norm: float) -> Crafted:
    """The same sorting machine with a lower gain, so that updates of `clients` have at most the L2 `norm`.

    Only the gain goes down, and with it the first layer's gradient, which is nearly all of an update; what is
    sorted and where stays as it is.
    """
    if not clients:
        raise CannotRun(
            "updates within a norm are rehearsed with two or more images on a client; there are fewer"
        )
    longest = max(_length(crafted, images) for images in clients)
    if longest <= SPARE * norm:
        return crafted
    return _with_gain(crafted, SPARE * norm / longest)


def _length(crafted: Crafted, images: Images) -> float:
    """The length of the longest update that a client with these images would send."""
    protocol = crafted.protocol
    network = laid_out(deepcopy(protocol.architecture))
    trainable = protocol.layout.trainable
    deltas = [fit(network, sent, images, protocol.recipe, seed=0) - sent for sent in crafted.vectors]
    return max(float(delta[:trainable].norm()) for delta in deltas)


def _with_gain(crafted: Crafted, factor: float) -> Crafted:
    """The crafted models with their gain times `factor`."""
    protocol, surrogate, sorter = crafted.protocol, crafted.surrogate, crafted.sorter
    recipe = protocol.recipe
    first = f"{surrogate.cut.linear[0]}.weight"
    gain = factor * crafted.unit / (recipe.lr * recipe.epochs)
    pages = sorter.pages(len(protocol.layout.named(surrogate.vector)[first]))
    vectors = []
    for page, sent in zip(pages, crafted.vectors):
        rows = sorter.layer(page)
        scale = float(protocol.layout.named(sent)[first][0].norm() / rows[0][0].norm())
        vector = surrogate.vector.clone()
        named = protocol.layout.named(vector)
        write_page(named, surrogate.cut.linear, rows, crafted.code, surrogate.latents, gain, scale)
        vectors.append(vector)
    return dataclasses.replace(crafted, vectors=tuple(vectors), unit=factor * crafted.unit)
