"""Clients that drop out in the middle of a round."""

import math
from collections.abc import Sequence

from glasshouse.errors import BadInput
from glasshouse.learning.seeds import numpy_rng


def check_dropouts(before: float, after: float) -> None:
    """Check the shares of clients that drop out `before` they send their masked vector and `after` it."""
    for name, share in (("dropout_before", before), ("dropout_after", after)):
        if not 0 <= share < 1:
            raise BadInput(f"{name} = {share} is out of range; it must lie in [0, 1)")
    if before + after >= 1:
        raise BadInput(
            f"dropout_before = {before} and dropout_after = {after} leave no client; "
            "their sum must be below 1"
        )


def draw_dropouts(
    clients: Sequence[int], before: float, after: float, seed: int
) -> tuple[set[int], set[int]]:
    """Who drops out before sending its masked vector, and who after: the nearest numbers to both shares."""
    order = [int(client) for client in numpy_rng(seed, "drop-outs").permutation(clients)]
    first, second = (math.floor(share * len(order) + 0.5) for share in (before, after))
    return set(order[:first]), set(order[first : first + second])
