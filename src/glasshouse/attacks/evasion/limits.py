"""How far evasion attacks may go, checked at the door, and how one run serves several limits."""

import math
from collections.abc import Sequence
from typing import Protocol, get_args

import torch
from torch import Tensor

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.ball import Ball, Norm

Limit = float | tuple[float, ...] | None
"""One limit, several in any order, or null for the batch-robustness paper's."""

GREY, COLOUR = 0.3, 0.02
"""The batch-robustness paper's limits for grey and for colour images."""


def is_grey(images: Images) -> bool:
    """Whether images have one channel."""
    return images.shape[0] == 1


def check_limits(attack: str, eps: object, norm: object = "linf") -> None:
    """Refuse what is no limit in `norm`, and a norm that is unknown."""
    if norm not in get_args(Norm):
        raise BadInput(f'{attack} norm = {norm!r} is unknown; it must be "linf" or "l2"')
    if eps is None:
        return
    most = 1.0 if norm == "linf" else math.inf
    rule = "in [0, 1]" if norm == "linf" else "of at least 0"
    for one in eps if isinstance(eps, tuple | list) and eps else (eps,):
        is_number = isinstance(one, int | float) and not isinstance(one, bool)
        if not is_number or not math.isfinite(one) or not 0 <= one <= most:
            raise BadInput(f"{attack} eps = {one!r} is out of range; it must be a number {rule}, or several")


def limits(eps: Limit, images: Images) -> tuple[float, ...]:
    """The limits asked for, ascending and each once."""
    if eps is None:
        return (GREY if is_grey(images) else COLOUR,)
    return tuple(sorted({float(one) for one in (eps if isinstance(eps, Sequence) else (eps,))}))


class Assault(Protocol):
    """Tries the images at `positions`, none of which is fooled yet, within `ball` around them."""

    def __call__(self, ball: Ball, y: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """An example for each image, and whether it fools the model, bool of shape (N,)."""


def at_each(
    sizes: tuple[float, ...], norm: Norm, images: Images, fallen: Tensor, assault: Assault
) -> tuple[Tensor, Tensor]:
    """Examples for each of E limits, shape (E, N, C, H, W), and who is fooled at each, shape (E, N).

    An image that is fooled within one limit keeps that example for all larger ones and is not tried again;
    those `fallen` from the start stay as they are. So no larger limit leaves more accuracy.
    """
    x, fallen = images.x.clone(), fallen.clone()
    examples, fooled = [], []
    for eps in sizes:
        alive = (~fallen).nonzero().flatten()
        if eps > 0 and len(alive):
            x[alive], fell = assault(Ball(images.x[alive], eps, norm), images.y[alive], alive)
            fallen[alive[fell]] = True
        examples.append(x.clone())
        fooled.append(fallen.clone())
    return torch.stack(examples), torch.stack(fooled)
