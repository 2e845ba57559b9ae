"""Parts of a row of images, as positions in it: no position is in two of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from glasshouse.errors import BadInput, named


def as_positions(values: Any, name: str) -> np.ndarray:
    """A user's positions, given as an array, a tensor or a list, as one array."""
    try:
        positions = np.asarray(values)
    except Exception as error:  # a user's own type may raise anything
        raise BadInput(f"{name}: no array of positions ({named(error)}); give whole numbers") from error
    return positions.astype(np.int64) if positions.size == 0 and positions.ndim == 1 else positions


def check_disjoint(parts: Mapping[str, np.ndarray], total: int) -> None:
    """Refuse parts of `total` images that are no positions, or that share some."""
    names = list(parts)
    owner = np.full(total, -1)
    for number, (name, positions) in enumerate(parts.items()):
        if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
            raise BadInput(f"{name}: positions must be one row of whole numbers, not {positions.dtype}")
        if len(positions) and (positions.min() < 0 or positions.max() >= total):
            raise BadInput(
                f"{name}: positions {positions.min()} to {positions.max()}; they must lie in 0..{total - 1}"
            )
        taken = positions[owner[positions] >= 0]
        if len(taken):
            raise BadInput(
                f"image {taken[0]} is in {names[owner[taken[0]]]} and in {name}; it may be in one part only"
            )
        if len(np.unique(positions)) != len(positions):
            raise BadInput(f"{name} names an image twice; an image may be in one part only")
        owner[positions] = number
