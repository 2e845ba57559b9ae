"""What attacks raise to fool a model, one value for each image."""

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshouse.attacks.evasion.frozen import margin


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
    if logits.shape[1] < 3:
        return lead
    highest = logits.topk(3, dim=1).values
    return lead / (highest[:, 0] - highest[:, 2]).clamp_min(torch.finfo(logits.dtype).tiny)
