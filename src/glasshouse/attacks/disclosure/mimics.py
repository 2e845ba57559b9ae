"""Membership from samples that a server sends beside its model: do they lie near the training records?"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import PayloadAccess, SeenPayload
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.errors import CannotRun
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.nearness import Nearness
from glasshouse.federation.strategies.generator import Generator
from glasshouse.federation.strategies.recalling import Recalling
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.evaluate import CHUNK
from glasshouse.learning.layout import write_vector
from glasshouse.models.outputs import features, output_layer

PER_CLASS = 256
"""As many features are drawn of each class from a generator."""


@dataclass(frozen=True, kw_only=True)
class MimicDistance(Attack):
    """Calls a record a member if it lies near a sample that the server sent beside the model.

    Scores are negative distances to the nearest sample of all observed rounds: of pixels where the samples
    are images, else of the inputs of the model's last layer. It accuses the nearer half of the records, as it
    has nothing to set a threshold by.
    """

    family = "membership"
    needs = (PayloadAccess,)
    knows = ("candidates",)

    def run(self, access: PayloadAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        x = required(knowledge.candidates).x
        scores = -np.min([samples.nearest(x) for samples in received(access, rng)], axis=0)
        return MembershipScores(scores, scores > np.median(scores))


@dataclass(frozen=True, kw_only=True)
class MimicNeighbours(Attack):
    """Looks for the record that is nearest to each sample which the server sent beside the model.

    Samples of one round are all made from one model, and those of the next from nearly the same; it looks at
    the last observed round that has any.
    """

    family = "disclosure"
    needs = (PayloadAccess,)
    knows = ("candidates",)

    def run(self, access: PayloadAccess, knowledge: Knowledge, rng: torch.Generator) -> Nearness:
        return Nearness(received(access, rng)[-1].distances(required(knowledge.candidates).x))


@dataclass(frozen=True, eq=False)
class Samples:
    """What one round's payload shows: K `points`, shape (K, d), and where images lie among them.

    `place` maps images, (N, C, H, W), to (N, d); `pixels` says that the points are images themselves.
    """

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

    def nearest(self, x: Tensor) -> np.ndarray:
        """From each of the images `x` to the nearest point, shape (N,), comparable between rounds.

        Features grow while a network learns, so they are measured by their median.
        """
        nearest: np.ndarray = self.distances(x).min(0)
        return nearest if self.pixels else nearest / max(float(np.median(nearest)), 1e-12)


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
        return Samples(payload["mimic"].flatten(1), lambda x: x.flatten(1), pixels=True)
    strategy = access.protocol.strategy
    if "features" in payload:
        points = payload["features"]
    elif "generator" in payload and isinstance(strategy, Recalling):
        points = _drawn(access, strategy, payload["generator"], rng)
    else:
        return None
    return Samples(points, _embedding(access, seen), pixels=False)


@torch.no_grad()
def _drawn(access: PayloadAccess, strategy: Recalling, weights: Tensor, rng: torch.Generator) -> Tensor:
    """Features of every class from the generator with these weights, shape (classes * PER_CLASS, d)."""
    protocol = access.protocol
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
