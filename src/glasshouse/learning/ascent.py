"""Gradient ascent on the loss of a batch of images, as adversarial training does before each step."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.learning.ball import Ball, Norm, inside


def ascend(
    logits: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    eps: float,
    step: float,
    steps: int,
    norm: Norm = "linf",
    rng: torch.Generator,
    start_random: bool = True,
) -> Tensor:
    """`x`, shape (N, C, H, W), moved `steps` times by `step` to where the cross-entropy with `y` is larger.

    Every image takes every step, within `eps` and [0, 1]. `logits` is any differentiable function; only the
    gradient with respect to the images is computed.
    """
    ball = Ball(x, eps, norm)
    moved = ball.at(inside(x.shape, norm, rng)) if start_random else x.clone()
    for _ in range(steps):
        with torch.enable_grad():
            tracked = moved.detach().requires_grad_()
            loss = F.cross_entropy(logits(tracked), y, reduction="sum")
            slope = None
            if loss.requires_grad:
                (slope,) = torch.autograd.grad(loss, tracked, allow_unused=True)
        if slope is None:
            raise BadInput(
                "adversarial training: the network detaches tensors or turns gradients off, so none reaches "
                "its images; leave that defence out, or let them through"
            )
        moved = ball.project(tracked.detach().add(ball.uphill(slope), alpha=step))
    return moved
