"""Draw disjoint parts within every client: each part has the clients and classes in the same proportions."""

from collections.abc import Sequence

import numpy as np

from glasshouse.errors import BadInput


def dealt(
    sizes: Sequence[int],
    owner: np.ndarray,
    y: np.ndarray,
    rng: np.random.Generator,
    together: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Disjoint sorted positions, one array for each of `sizes`, with all owners and classes in proportion.

    The images stand in a row, by owner and then by class, each owner's classes in an order of its own. The
    parts take turns along the row: as often as their sizes say, spread evenly, from a random start. So every
    image is as likely as any other to fall to a part. Images that are `together` take one place and fall to
    one part; the sizes are then kept roughly. Each owner, a number from 0, has something in the first part.
    """
    owners = int(owner.max()) + 1
    if sizes[0] < owners:
        raise BadInput(
            f"{sizes[0]} members for {owners} clients, each of which needs one at least; ask "
            "for more members or fewer clients, or hold out whole clients"
        )
    _, first, unit_of = np.unique(
        np.arange(len(y)) if together is None else together, return_index=True, return_inverse=True
    )
    units, order_of_class = len(first), rng.random((owners, int(y.max()) + 1))
    row = np.lexsort((rng.permutation(units), order_of_class[owner[first], y[first]], owner[first]))
    part_of_unit = np.empty(units, dtype=np.int64)
    part_of_unit[row] = np.roll(_turns(sizes, len(y), units), rng.integers(units))
    part = part_of_unit[unit_of]
    for bare in np.setdiff1d(owner, owner[part == 0]):
        taken = rng.choice(np.flatnonzero(owner == bare))
        if together is None:
            richest = np.bincount(owner[part == 0]).argmax()
            part[rng.choice(np.flatnonzero((owner == richest) & (part == 0)))] = part[taken]
        part[unit_of == unit_of[taken]] = 0
    return [np.flatnonzero(part == number) for number in range(len(sizes))]


def with_the_rest(parts: Sequence[np.ndarray], sizes: Sequence[int], owner: np.ndarray) -> list[np.ndarray]:
    """The parts with the images of those owners, too, that were too large for what was left of any.

    Each falls to the part that lacks most, or to none where as many images were to be left out.
    """
    number_of = np.full(len(owner), len(sizes))
    for number, positions in enumerate(parts):
        number_of[positions] = number
    lacks = np.array([*sizes, len(owner) - sum(sizes)]) - np.bincount(number_of, minlength=len(sizes) + 1)
    rest = np.bincount(owner[number_of == len(sizes)])
    lacks[-1] += rest.sum()
    for one in sorted(np.flatnonzero(rest), key=lambda one: -rest[one]):
        goal = int(np.argmax(lacks))
        number_of[owner == one] = goal
        lacks[goal] -= rest[one]
    return [np.flatnonzero(number_of == number) for number in range(len(sizes))]


def _turns(sizes: Sequence[int], total: int, places: int) -> np.ndarray:
    """Which part is on turn at each of the `places`, on which `sizes` of `total` images shall fall.

    The number after the last part stands for none of them.
    """
    ends = np.rint(np.cumsum([*sizes, total - sum(sizes)]) * places / total).astype(np.int64)
    counts = np.diff(ends, prepend=0)
    when = np.concatenate([(np.arange(count) + 0.5) / max(count, 1) for count in counts])
    return np.repeat(np.arange(len(counts)), counts)[np.argsort(when, kind="stable")]
