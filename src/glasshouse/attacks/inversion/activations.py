"""Undoing activations: from what a layer passed on to what it computed, and the slope in between.

A leaky ReLU's slope depends on the sign of its output alone. An output near zero that was recovered with the
wrong sign makes k = dL/dz wrong by the ratio of the two slopes, and everything below with it. But the sign
shows once the layer's input is solved for: dL/dW is linear in k.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.attacks.inversion.chain import Link
from glasshouse.attacks.inversion.convolution import padding

ZERO = 1e-6
"""Outputs of a ReLU up to this share of the largest count as zero: a recovered zero is no exact one."""

EDGE = 1e-9
"""How near to its ends an output of a sigmoid or tanh is read."""

DOUBT = 2e-2
"""Outputs up to this share of their root mean square may have been recovered with the wrong sign."""

GAIN = 0.2
"""The share of what an output's weights leave unexplained, squared, that a change of sign must explain."""


def undo(activation: nn.Module, x: Tensor, positive: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """From an activation's output x: its input, where that can be told (bool), and its derivative there.

    `positive`, bool like x, says where a leaky ReLU's output is positive, if x itself is not to be trusted.

    >>> undo(nn.LeakyReLU(0.5), torch.tensor([3.0, -1.0]))
    (tensor([ 3., -2.]), tensor([True, True]), tensor([1.0000, 0.5000]))
    """
    everywhere = torch.ones_like(x, dtype=torch.bool)
    if isinstance(activation, nn.LeakyReLU) and activation.negative_slope > 0:
        slope = _slope(activation, x > 0 if positive is None else positive, x)
        return x / slope, everywhere, slope
    if isinstance(activation, nn.ReLU | nn.LeakyReLU):
        fired = x > x.abs().max() * ZERO
        return x, fired, fired.to(x.dtype)
    if isinstance(activation, nn.Sigmoid):
        inside = x.clamp(EDGE, 1 - EDGE)
        return inside.logit(), everywhere, inside * (1 - inside)
    if isinstance(activation, nn.Tanh):
        inside = x.clamp(EDGE - 1, 1 - EDGE)
        return inside.atanh(), everywhere, 1 - inside.square()
    return x, everywhere, torch.ones_like(x)


def settle_signs(
    link: Link, gradient: Tensor, x: Tensor, out: Tensor, arriving: Tensor, positive: Tensor
) -> Tensor:
    """Where a layer's outputs are positive, those near zero decided by the gradient of its weights.

    With `x` the input solved for, U its patches, shape (kernel inputs, places), and k = slope * arriving,
    R = dL/dW - k U^T is what wrong entries of k leave unexplained. The sign whose change shortens its row of
    R the most is changed, as long as one shortens it by `GAIN` or more.
    """
    activation = link.activation
    if not isinstance(activation, nn.LeakyReLU) or activation.negative_slope in (0, 1):
        return positive
    patches, count = _patches(link, x), len(arriving)
    slope, other = (_slope(activation, signs, x).reshape(count, -1) for signs in (positive, ~positive))
    flat = arriving.reshape(count, -1)
    residual = gradient.reshape(count, -1) - (slope * flat) @ patches.T
    change = (other - slope) * flat
    doubtful = (out.abs() <= DOUBT * out.square().mean().sqrt()).reshape(count, -1)
    settled, lengths = positive.reshape(count, -1).clone(), patches.square().sum(0)
    while True:
        shortened = 2 * change * (residual @ patches) - change.square() * lengths
        gain, place = torch.where(doubtful, shortened, -torch.inf).max(1)
        rows = (gain > GAIN * residual.square().sum(1)).nonzero().flatten()
        if not len(rows):
            break
        at = place[rows]
        residual[rows] -= change[rows, at, None] * patches[:, at].T
        settled[rows, at] ^= True
        doubtful[rows, at] = False
    return settled.reshape(positive.shape)


def _slope(activation: nn.LeakyReLU, positive: Tensor, like: Tensor) -> Tensor:
    return torch.where(positive, 1.0, activation.negative_slope).to(like.dtype)


def _patches(link: Link, x: Tensor) -> Tensor:
    """What each place of a layer's output is computed from, shape (inputs of a kernel, places)."""
    conv = link.module
    if not isinstance(conv, nn.Conv2d):
        return x.reshape(-1, 1)
    padded = F.pad(x.reshape(1, *link.entering), padding(conv))
    return F.unfold(padded, conv.kernel_size, conv.dilation, stride=conv.stride)[0]
