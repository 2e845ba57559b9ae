"""Robbing the Fed (Fowl et al. 2022): an imprint block before the network reads images from a sum of updates.

The server adds two linear layers before the agreed network. The first one's rows all measure an image's mean
brightness against thresholds of their own, so that its gradient holds the images themselves, sorted into bins
by brightness, whatever the network behind and however many clients are summed.

A bin's weight is the difference of two biases (eq. 5 of the Scale-MIA paper). Where clients take several
steps, the biases must be large to stay what they are and single precision leaves little of their
differences. But the brightness of what a bin holds is known: it lies in the bin. A weight that contradicts it
is replaced by the nearest one that does not.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import ServerAccess
from glasshouse.attacks.crafted.imprint import Imprint, ImprintAttack, craft, slack_of
from glasshouse.attacks.crafted.leakage import decode
from glasshouse.data.images import Images
from glasshouse.federation.updates import Delivery


@dataclass(frozen=True, kw_only=True)
class RobbingTheFed(ImprintAttack):
    """Adds two linear layers before the network, whose gradient holds the clients' images themselves."""

    name = "robbing-the-fed"

    def imprint(self, access: ServerAccess, auxiliary: Images) -> Imprint:
        pixels = math.prod(access.protocol.shape)
        row = torch.full((pixels,), 1 / pixels)
        return craft(access, auxiliary, bins=self.bins, law=self.law, row=row)

    def rebuild(self, serving: ServerAccess, imprint: Imprint, delivery: Delivery) -> Tensor:
        sums, weights = imprint.read(serving, serving.current, delivery)
        slack = slack_of(serving)
        weights = within_bins(sums, weights, imprint.bins.bounds(slack))
        x, _ = decode(sums, weights, delivery.samples, slack, serving.protocol.shape)
        return x


def within_bins(sums: Tensor, weights: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """The weights, shape (k,), moved to where the brightness of each bin's quotient is within its bounds."""
    total = sums.mean(1)
    brightness = total / weights
    possible = brightness.clamp(*bounds)
    return torch.where(brightness == possible, weights, (total / possible).nan_to_num(0, 0, 0))
