"""How far evasion attacks may go, checked at the door."""

import math
from collections.abc import Sequence
from typing import get_args

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.ball import Norm

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
