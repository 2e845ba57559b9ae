"""How a learning rate changes on its way, as a factor of the largest one."""

import math
from typing import Literal

Schedule = Literal["constant", "cosine", "halving", "steps", "step"]

HALVED_AFTER = 5
"""Units after which the schedule "halving" halves the learning rate."""

LOWERED_AFTER = (3 / 8, 5 / 8, 7 / 8)
"""The shares of the way after which the schedule "steps" lowers the learning rate to a tenth."""

GAMMA = 0.1
"""What the schedule "step" multiplies the learning rate by where nothing else is said."""


def factor(
    schedule: Schedule,
    place: int,
    total: int,
    units: int,
    *,
    warmup: int = 0,
    step_size: int | None = None,
    gamma: float | None = None,
) -> float:
    """The factor at `place` of `total` steps, which are divided equally among `units`: epochs, or rounds.

    Over the first `warmup` units it rises linearly, and reaches 1 where the schedule begins, which has the
    rest of the way.

    >>> [factor("constant", place, total=4, units=4, warmup=3) for place in range(4)]
    [0.25, 0.5, 0.75, 1.0]
    >>> [factor("cosine", place, total=3, units=3, warmup=1) for place in range(3)]
    [0.5, 1.0, 0.5]
    """
    warm = warmup * total // units
    if place < warm:
        return (place + 1) / (warm + 1)
    place, total, units = place - warm, total - warm, units - warmup
    unit = place * units // total
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * place / total))
    if schedule == "halving":
        return 0.5 ** (unit // HALVED_AFTER)
    if schedule == "steps":
        return 0.1 ** sum(place >= round(share * total) for share in LOWERED_AFTER)
    if schedule == "step":
        assert step_size is not None
        return float((GAMMA if gamma is None else gamma) ** (unit // step_size))
    return 1.0
