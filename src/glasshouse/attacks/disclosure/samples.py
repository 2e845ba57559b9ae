"""Samples that a server sends beside its model, and how far the records in question lie from them."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import PayloadAccess, SeenPayload
from glasshouse.errors import CannotRun
from glasshouse.federation.strategies.generator import Generator
from glasshouse.federation.strategies.recalling import Recalling
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.evaluate import CHUNK
from glasshouse.learning.layout import write_vector
from glasshouse.models.outputs import features, output_layer

PER_CLASS = 256
"""As many features are drawn of each class from a generator."""


@dataclass(frozen=True, eq=False)
class Samples:
    """What one round's payload shows: K `points`, shape (K, d), and where images lie among them.

    `place` maps images, (N, C, H, W), to (N, d); `pixels` says that the points are images themselves.
    """

    number: int
    points: Tensor
    place: Callable[[Tensor], Tensor]
    pixels: bool

    def distances(self, x: Tensor) -> np.ndarray:
        """From each point to each of the images `x`, shape (K, N)."""
        # Through inner products, which is fast; in single precision it would not tell small distances apart.
        mode = "use_mm_for_euclid_dist"
        apart = torch.cdist(self.points.double(), self.place(x).double(), compute_mode=mode)
        distances: np.ndarray = apart.numpy()
        if not np.isfinite(distances).all():
            raise CannotRun("the samples that the server sends are not finite numbers")
        return distances


def received(access: PayloadAccess, rng: torch.Generator) -> list[Samples]:
    """The samples of every observed round in which any came, or `CannotRun` where there are none."""
    arrived = [samples for seen in access.rounds if (samples := _samples(access, seen, rng)) is not None]
    if not arrived:
        names = ", ".join(dict.fromkeys(name for seen in access.rounds for name in seen.payload))
        raise CannotRun(f"there are no samples in what the server sends beside the model ({names})")
    return arrived


def _samples(access: PayloadAccess, seen: SeenPayload, rng: torch.Generator) -> Samples | None:
    payload = seen.payload
    if "mimic" in payload:
        return Samples(seen.number, payload["mimic"].flatten(1), lambda x: x.flatten(1), pixels=True)
    if "features" in payload:
        return Samples(seen.number, payload["features"], _embedding(access, seen), pixels=False)
    if "generator" in payload and isinstance(access.protocol.strategy, Recalling):
        drawn = _drawn(access, payload["generator"], rng)
        return Samples(seen.number, drawn, _embedding(access, seen), pixels=False)
    return None


@torch.no_grad()
def _drawn(access: PayloadAccess, weights: Tensor, rng: torch.Generator) -> Tensor:
    """Features of every class from the generator with these weights, shape (classes * PER_CLASS, d)."""
    protocol, strategy = access.protocol, access.protocol.strategy
    assert isinstance(strategy, Recalling)
    width = output_layer(protocol.architecture, protocol.shape).in_features
    generator = Generator(strategy.noise, protocol.classes, strategy.hidden, width).eval()
    write_vector(generator, weights)
    labels = torch.arange(protocol.classes).repeat_interleave(PER_CLASS)
    drawn: Tensor = generator(generator.draw(len(labels), rng), labels)
    return drawn


def _embedding(access: PayloadAccess, seen: SeenPayload) -> Callable[[Tensor], Tensor]:
    """From images to the inputs of the last layer of this round's model, (N, d)."""
    network = deepcopy(access.protocol.architecture).eval()
    write_vector(network, seen.sent)
    last = output_layer(network, access.protocol.shape)

    @torch.no_grad()
    def embed(x: Tensor) -> Tensor:
        return torch.cat([features(network, last, channels_last(chunk)) for chunk in x.split(CHUNK)])

    return embed
