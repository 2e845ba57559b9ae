"""How far one gradient is from another: both as lists of tensors, one for each parameter of a network."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Distance = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[float]], Tensor]
"""From a gradient, the one seen and a weight for each tensor to a differentiable scalar."""


def squared(gradient: Sequence[Tensor], seen: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted sum of squared differences.

    >>> squared([torch.tensor([1.0, 2.0])], [torch.tensor([0.0, 4.0])], [1.0])
    tensor(5.)
    """
    return _summed(weights, [(part - other).square().sum() for part, other in zip(gradient, seen)])


def absolute(gradient: Sequence[Tensor], seen: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted sum of absolute differences."""
    return _summed(weights, [(part - other).abs().sum() for part, other in zip(gradient, seen)])


def cosine(gradient: Sequence[Tensor], seen: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """1 minus the cosine of the angle between the gradients, all tensors taken together.

    >>> cosine([torch.tensor([1.0, 0.0])], [torch.tensor([0.0, 4.0])], [1.0])
    tensor(1.)
    """
    dot = _summed(weights, [(part * other).sum() for part, other in zip(gradient, seen)])
    lengths = [
        _summed(weights, [part.square().sum() for part in parts]).sqrt().clamp_min(1e-30)
        for parts in (gradient, seen)
    ]
    return 1 - dot / (lengths[0] * lengths[1])


FEW = 20.0
"""Tensors shorter than so many times their rounding are left out: it may turn them by more than 1e-4.

What `explaining` reckons with is up to five times what is found, and 1 - cos a is a^2 / 2.
"""


def worst_tensor(gradient: Sequence[Tensor], seen: Sequence[Tensor], rounding: Sequence[float]) -> float:
    """The largest cosine distance of a tensor, in [0, 2], of those that say something; 1 where none does.

    `rounding` is the length of what is rounding in each tensor seen. Where it is most of the tensor, as in a
    bias before batch norm, whose gradient is zero in theory, the angle is that of two draws of noise, and the
    images' own gradient has another one. All tensors together say less than the worst: where one outweighs
    the others, images may be wrong and the angle small.

    >>> gradient, seen = [torch.tensor([1.0, 0.0])] * 2, [torch.tensor([0.0, 1.0]), torch.ones(2)]
    >>> round(worst_tensor(gradient, seen, [0.0, 0.0]), 3), round(worst_tensor(gradient, seen, [0.1, 0.0]), 3)
    (1.0, 0.293)
    """
    pairs = [
        (part.detach().double(), other.double())
        for part, other, noise in zip(gradient, seen, rounding)
        if float(other.double().norm()) > FEW * noise
    ]
    return max((_turned(part, other) for part, other in pairs), default=1.0)


def _turned(part: Tensor, other: Tensor) -> float:
    """The cosine distance of two tensors however short; 2 where one is not finite."""
    lengths = (part.norm() * other.norm()).clamp_min(torch.finfo(part.dtype).tiny)
    distance = float(1 - (part * other).sum() / lengths)
    return max(0.0, distance) if math.isfinite(distance) else 2.0


DISTANCES: dict[str, Distance] = {"l2": squared, "l1": absolute, "cosine": cosine}

WEIGHTINGS = ("equal", "rising", "falling")


def layer_weights(weighting: str, count: int) -> list[float]:
    """A weight for each of `count` tensors, 1 on average: the same, or rising or falling along the network.

    >>> layer_weights("rising", 3)
    [0.5, 1.0, 1.5]
    """
    if weighting == "equal":
        return [1.0] * count
    rising = [2 * place / (count + 1) for place in range(1, count + 1)]
    return rising if weighting == "rising" else rising[::-1]


def _summed(weights: Sequence[float], parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part if weight == 1 else weight * part for weight, part in zip(weights, parts)]).sum()
