"""Robbing the Fed (Fowl et al. 2022): an imprint block before the network reads images from a sum of updates.

The server adds two linear layers before the agreed network. The first one's rows all measure an image's mean
brightness against thresholds of their own, so that its gradient holds the images themselves, sorted into bins
by brightness, whatever the network behind and however many clients are summed.

A bin's weight is the difference of two biases (eq. 5 of the Scale-MIA paper). Where clients take several
steps, the biases must be large to stay what they are and single precision leaves little of their
differences; but a sample's brightness is known to within its bin, so the weights' differences tell its weight
too. Each bin takes the finer reading.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import BlindServerAccess
from glasshouse.attacks.attack import Attack, Knowledge, Reconstructions
from glasshouse.attacks.crafted.imprint import (
    TINY,
    Bins,
    check_bins,
    check_recipe,
    craft,
    images_of,
    may_rebuild,
    noise_level,
    occupied,
)
from glasshouse.attacks.crafted.leakage import Law, quotients


@dataclass(frozen=True, kw_only=True)
class RobbingTheFed(Attack):
    """Adds two linear layers before the network, whose gradient holds the clients' images themselves."""

    bins: int = 1024
    law: Law = "empirical"
    family = "reconstruction"
    needs = (BlindServerAccess,)
    told = ("auxiliary",)
    changes_network = True

    def __post_init__(self) -> None:
        check_bins("robbing-the-fed", self.bins, self.law)

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        assert knowledge.auxiliary is not None
        check_recipe(access.protocol.recipe)
        started = time.perf_counter()
        pixels = math.prod(access.protocol.shape)
        row = torch.full((pixels,), 1 / pixels)
        imprint = craft(access, knowledge.auxiliary, bins=self.bins, law=self.law, row=row)
        serving = may_rebuild(access)(imprint.network)
        crafted = time.perf_counter()
        delivery = serving.exchange(serving.current, range(len(access.sizes)))
        received = time.perf_counter()
        sums, weights = imprint.read(serving, serving.current, delivery)
        by_brightness = sums.mean(1) / imprint.bins.centres.clamp(min=TINY)
        weights = finer(weights, by_brightness, imprint.bins, delivery.samples)
        chosen = occupied(by_brightness, delivery.samples)
        x = images_of(quotients(sums[chosen], weights[chosen]), access.protocol.shape)
        return Reconstructions(x, delivery.clients, crafted - started, time.perf_counter() - received)


def finer(by_bias: Tensor, by_brightness: Tensor, bins: Bins, samples: int) -> Tensor:
    """Of two readings of the bins' weights, shape (k,), the one with the smaller relative error in each bin.

    Both have the noise that empty bins show; that by brightness is off by up to half a bin besides.
    """
    strength = by_brightness.abs().clamp(min=TINY)
    bias_error = noise_level(by_bias, samples) / strength
    brightness_error = noise_level(by_brightness, samples) / strength + bins.halves / bins.centres.clamp(
        min=TINY
    )
    return torch.where(bias_error < brightness_error, by_bias, by_brightness)
