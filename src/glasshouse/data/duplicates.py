"""Which images of a data set have the same pixels."""

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
from torch import Tensor

BLOCK = 100
"""Images whose pixels are copied at once."""


def first_copies(x: Tensor) -> np.ndarray:
    """For each image of `x`, shape (N, C, H, W), the position of the first with the same pixels, shape (N,).

    >>> import torch
    >>> first_copies(torch.tensor([0.1, 0.2, 0.1, 0.2]).view(4, 1, 1, 1)).tolist()
    [0, 1, 0, 1]
    """
    sums = np.concatenate([_bits(block).sum(1, dtype=np.int64) for block in x.split(BLOCK)])
    _, which, counts = np.unique(sums, return_inverse=True, return_counts=True)
    first = np.arange(len(x))
    position_of: dict[bytes, int] = {}
    for position in np.flatnonzero(counts[which] > 1).tolist():
        digest = blake2b(_bits(x[position : position + 1]).tobytes(), digest_size=16).digest()
        first[position] = position_of.setdefault(digest, position)
    return first


def _bits(x: Tensor) -> np.ndarray:
    """The pixels of (N, C, H, W) images as whole numbers, equal where they are, shape (N, pixels)."""
    pixels = x.reshape(len(x), -1).numpy() + np.float32(0)  # makes -0.0 the 0.0 that it equals
    return np.ascontiguousarray(pixels).view(np.int32)


def without_copies(parts: Mapping[str, np.ndarray], first: np.ndarray) -> dict[str, np.ndarray]:
    """The positions in `parts` without images that an earlier part has too, by their `first_copies`.

    Copies within a part stay.
    """
    taken = np.zeros(len(first), dtype=bool)
    kept = {}
    for name, positions in parts.items():
        kept[name] = positions[~taken[first[positions]]]
        taken[first[positions]] = True
    return kept


def shared(parts: Mapping[str, np.ndarray], first: np.ndarray) -> dict[tuple[str, str], int]:
    """How many different images two of the `parts` have in common, for each two that have any."""
    images = {name: np.unique(first[positions]) for name, positions in parts.items()}
    names = list(images)
    common = {
        (one, other): len(np.intersect1d(images[one], images[other], assume_unique=True))
        for place, one in enumerate(names)
        for other in names[place + 1 :]
    }
    return {pair: count for pair, count in common.items() if count}
