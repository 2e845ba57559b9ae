"""The options that all attacks which end in an inversion share, checked at the door."""

import math

from glasshouse.errors import BadInput
from glasshouse.options import check_whole


def check_inversion(attack: str, steps: int | None, restarts: int, tv: float) -> None:
    """Refuse numbers that an inversion cannot work with."""
    if steps is not None:
        check_whole(attack, "steps", steps, 1)
    check_whole(attack, "restarts", restarts, 1)
    if not (math.isfinite(tv) and tv >= 0):
        raise BadInput(f"{attack} tv = {tv} is out of range; it must be at least 0")
