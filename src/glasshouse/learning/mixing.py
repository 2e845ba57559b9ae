"""Mix-up (Zhang et al. 2018): training on weighted means of two images and of their targets."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def mixed(
    x: Tensor, y: Tensor, classes: int, alpha: float, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Each image of `x`, shape (B, C, H, W), mixed with another of its batch, and targets (B, classes).

    One weight is drawn for the batch, from Beta(`alpha`, `alpha`), and one order of the partners. Of a weight
    and its complement the larger is an image's own, which changes no more than who is whose partner: the
    likeliest class of a mixed target is the image's own label.
    """
    drawn = float(rng.beta(alpha, alpha))
    own = max(drawn, 1 - drawn)
    partner = torch.from_numpy(rng.permutation(len(x)))
    targets = F.one_hot(y, classes).to(x.dtype)
    return own * x + (1 - own) * x[partner], own * targets + (1 - own) * targets[partner]


def own_labels(targets: Tensor) -> Tensor:
    """The labels of images, shape (B,), from labels or from mixed targets, shape (B, classes)."""
    return targets if targets.ndim == 1 else targets.argmax(1)
