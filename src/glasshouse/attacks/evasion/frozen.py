"""A frozen copy of a model, laid out for speed; when it is fooled, and the losses that attacks raise."""

from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.learning.cpu import channels_last, laid_out

CHUNK = 128
"""Images that pass through the model at once: activations and gradients of these stay in cache."""

ROUNDING = 1e-5
"""By what share of the largest logit a class must lead to count: sums in another order differ by less."""

DLR_CLASSES, TARGETED_DLR_CLASSES = 3, 4
"""So many classes the ratio of differences of logits needs, and the one towards a wanted class."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""What an attack raises: (logits of shape (N, classes), labels) -> one value for each image."""


class Sight(NamedTuple):
    """What one look shows of N images: logits, losses, shape (N,), and the slope of the loss by pixel."""

    logits: Tensor
    losses: Tensor
    slope: Tensor


class Frozen:
    """A copy of `model` in eval mode whose parameters take no gradients; the model itself stays untouched."""

    def __init__(self, model: nn.Module, chunk: int = CHUNK) -> None:
        self._model = laid_out(deepcopy(model)).eval().requires_grad_(False)
        self._chunk = chunk

    def answers(self, x: Tensor) -> Tensor:
        """Logits for the images `x`, shape (N, classes)."""
        with torch.no_grad():
            return torch.cat([self._model(channels_last(part)) for part in x.split(self._chunk)])

    def look(self, x: Tensor, y: Tensor, loss: Loss) -> Sight:
        """Logits and the slope of `loss` at `x`, from one pass; a slope that is no number counts as flat."""
        sights = [self._glance(*part, loss) for part in zip(x.split(self._chunk), y.split(self._chunk))]
        logits, losses, slope = (torch.cat(parts) for parts in zip(*sights))
        return Sight(logits, losses, slope)

    def _glance(self, x: Tensor, y: Tensor, loss: Loss) -> Sight:
        with torch.enable_grad():
            tracked = channels_last(x.detach()).requires_grad_()
            logits: Tensor = self._model(tracked)
            losses = loss(logits, y)
            if not losses.requires_grad:  # a layer without a derivative cuts the images off
                return Sight(logits, losses, torch.zeros_like(x))
            (slope,) = torch.autograd.grad(losses.sum(), tracked)
        if not slope.sum().isfinite():
            slope = slope.nan_to_num(0, 0, 0)
        return Sight(logits.detach(), losses.detach(), slope)


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """By how much the best wrong class leads the right one, shape (N,)."""
    right = logits.gather(1, y[:, None])
    return (logits.scatter(1, y[:, None], -torch.inf).amax(1, keepdim=True) - right).flatten()


def fooled(logits: Tensor, y: Tensor) -> Tensor:
    """Whether a wrong class leads, by more than rounding could undo: bool of shape (N,)."""
    return margin(logits, y) > ROUNDING * logits.abs().amax(1)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy with the right label."""
    return F.cross_entropy(logits, y, reduction="none")


def attraction(logits: Tensor, targets: Tensor) -> Tensor:
    """Minus the cross-entropy with the labels that the model is to give instead."""
    return -F.cross_entropy(logits, targets, reduction="none")


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """The difference of logits ratio of Croce and Hein (2020): the lead of the best wrong class over z1 - z3.

    z1 >= z2 >= z3 are the largest logits. It depends on neither the scale nor the shift of the logits, so
    saturated models do not hide from it. With two classes there is no z3, and the lead stands alone.
    """
    lead = margin(logits, y)
    if logits.shape[1] < DLR_CLASSES:
        return lead
    highest = logits.topk(3, dim=1).values
    return lead / (highest[:, 0] - highest[:, 2]).clamp_min(torch.finfo(logits.dtype).tiny)


def wrong_classes(logits: Tensor, y: Tensor) -> Tensor:
    """All classes, the likeliest wrong one first and the right one last, shape (N, classes)."""
    return logits.scatter(1, y[:, None], -torch.inf).argsort(1, descending=True)


def targeted_lead(logits: Tensor, pairs: Tensor) -> Tensor:
    """By how much the wanted class leads the right one; `pairs`, shape (N, 2), are (right, wanted)."""
    right, wanted = logits.gather(1, pairs).unbind(1)
    return wanted - right


def targeted_dlr(logits: Tensor, pairs: Tensor) -> Tensor:
    """The targeted ratio of Croce and Hein (2020): the lead of the wanted class over z1 - (z3 + z4) / 2.

    `pairs`, shape (N, 2), are (right, wanted). With fewer than four classes the lead stands alone.
    """
    lead = targeted_lead(logits, pairs)
    if logits.shape[1] < TARGETED_DLR_CLASSES:
        return lead
    highest = logits.topk(4, dim=1).values
    spread = highest[:, 0] - (highest[:, 2] + highest[:, 3]) / 2
    return lead / spread.clamp_min(torch.finfo(logits.dtype).tiny)
