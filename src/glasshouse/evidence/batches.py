"""Records in batches: an answer about a batch is the mean of the answers about its records."""

import numpy as np

from glasshouse.errors import CannotRun
from glasshouse.options import check_number, check_whole


def compose(
    inside: np.ndarray, outside: np.ndarray, size: int, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint batches of `size` from the positions inside and outside: as member and as other batches.

    A member batch has the `share` of its records from inside, at least one, and the rest from outside; the
    other batches have none. Both are as many as possible, each of shape (batches, size).
    """
    members = max(1, round(share * size))
    fillers = size - members
    inside, outside = rng.permutation(inside), rng.permutation(outside)
    count = len(inside) // members
    if fillers:  # as many of the others as there are members' batches, if they suffice
        count = min(count, max(1, len(outside) // (fillers + size)))
    spare = outside[count * fillers :]
    rest = len(spare) // size
    if not count or not rest:
        raise CannotRun(
            f"{len(inside)} members and {len(outside)} others do not fill batches of {size} on both sides"
        )
    own = inside[: count * members].reshape(count, members)
    filling = outside[: count * fillers].reshape(count, fillers)
    mixed = rng.permuted(np.concatenate([own, filling], axis=1), axis=1)
    return mixed, spare[: rest * size].reshape(rest, size)


def check_batches(name: str, batch_size: int, fraction: float) -> None:
    """Refuse sizes and shares that make no batches."""
    check_whole(name, "batch_size", batch_size, 1)
    check_number(name, "fraction", fraction, 0, 1, open_low=True)
