"""Robbing the Fed (Fowl et al. 2022): an imprint block before the network reads images from a sum of updates.

The server adds two linear layers before the agreed network. The first one's rows all measure an image's mean
brightness against thresholds of their own, so that its gradient holds the images themselves, sorted into bins
by brightness, whatever the network behind and however many clients are summed.

A bin's weight is the difference of two biases (eq. 5 of the Scale-MIA paper). Where clients take several
steps, the biases must be large to stay what they are and single precision leaves little of their
differences. But the brightness of what a bin holds is known: it lies in the bin. A weight that contradicts it
gives way to the nearest one that does not.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import BlindServerAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.crafted.imprint import (
    check_bins,
    craft,
    decode,
    frozen_words,
    may_rebuild,
    slack_of,
)
from glasshouse.attacks.crafted.leakage import Law
from glasshouse.attacks.plain_steps import check_plain_steps
from glasshouse.evidence.reconstruction import Reconstructions


@dataclass(frozen=True, kw_only=True)
class RobbingTheFed(Attack):
    """Adds two linear layers before the network, whose gradient holds the clients' images themselves."""

    bins: int = 1024
    law: Law = "empirical"
    family = "reconstruction"
    needs = (BlindServerAccess,)
    knows = ("auxiliary",)
    changes_network = True

    def __post_init__(self) -> None:
        check_bins("robbing-the-fed", self.bins, self.law)

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        assert knowledge.auxiliary is not None
        check_plain_steps(access.protocol.recipe)
        started = time.perf_counter()
        pixels = math.prod(access.protocol.shape)
        row = torch.full((pixels,), 1 / pixels)
        imprint = craft(access, knowledge.auxiliary, bins=self.bins, law=self.law, row=row)
        serving = may_rebuild(access)(imprint.network)
        crafted = time.perf_counter()
        delivery = serving.exchange(serving.current, range(len(access.sizes)))
        received = time.perf_counter()
        sums, weights = imprint.read(serving, serving.current, delivery)
        slack = slack_of(access)
        weights = within_bins(sums, weights, imprint.bins.bounds(slack))
        x, _ = decode(sums, weights, delivery.samples, slack, access.protocol.shape)
        online = time.perf_counter() - received
        return Reconstructions(x, delivery.clients, crafted - started, online, frozen_words(access))


def within_bins(sums: Tensor, weights: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """The weights, shape (k,), moved to where the brightness of each bin's quotient is within its bounds."""
    total = sums.mean(1)
    brightness = total / weights
    possible = brightness.clamp(*bounds)
    return torch.where(brightness == possible, weights, (total / possible).nan_to_num(0, 0, 0))
