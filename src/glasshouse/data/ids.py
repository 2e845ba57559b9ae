"""Who an image belongs to, and which part it is of: ids and the names of parts, checked where they enter."""

import difflib
import re
from typing import Any

import numpy as np
from torch import Tensor

from glasshouse.data.formats import first_line
from glasshouse.errors import BadInput, quoted

PARTS = {"member": "members", "non-member": "nonmembers", "auxiliary": "auxiliary", "test": "test"}
"""What an image may be marked as, and the part of a split that it then falls to."""

NEITHER = "give whole numbers or strings, one for each training image"


def checked_ids(values: Any, count: int, key: str, source: str) -> np.ndarray:
    """One id for each of `count` images, whole numbers or strings of shape (count,)."""
    ids = _row(values, key, source)
    if ids.dtype == object:
        ids = _plain(ids, key, source)
    check_ids_like(ids.shape, ids.dtype, count, key, source)
    if ids.dtype.kind == "U" and (empty := np.flatnonzero(np.char.str_len(ids) == 0)).size:
        raise BadInput(f"{source}: {key} of image {empty[0]} is empty; give every training image an id")
    return ids


def check_ids_like(shape: tuple[int, ...], dtype: np.dtype, count: int, key: str, source: str) -> None:
    """Refuse ids by their shape and type alone, as the head of a file tells them."""
    if dtype.kind not in "iuU":
        hint = ", which may hold NaN" if dtype.kind == "f" else ""
        raise BadInput(f"{source}: {key} ids of type {dtype}{hint}; {NEITHER}")
    if shape != (count,):
        raise BadInput(f"{source}: {key} of shape {shape} for {count} training images; {NEITHER}")


def checked_parts(values: Any, count: int, source: str) -> np.ndarray:
    """The name of a part for each of `count` images, strings of shape (count,)."""
    marked = checked_ids(values, count, "part", source)
    for name in np.unique(marked).tolist():
        if name not in PARTS:
            near = difflib.get_close_matches(str(name)[:20], PARTS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(PARTS)}"
            place = np.flatnonzero(marked == name)[0]
            raise BadInput(f"{source}: unknown part {quoted(name)} of image {place}; {hint}")
    return marked


def numbered(ids: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The different ids in natural order, as strings, and the number of each image's among them, shape (N,).

    >>> names, number_of = numbered(np.array(["ward 10", "ward 9", "ward 10"]))
    >>> names, number_of.tolist()
    (('ward 9', 'ward 10'), [1, 0, 1])
    """
    different, which = np.unique(ids, return_inverse=True)
    names = [str(name) for name in different.tolist()]
    order = sorted(range(len(names)), key=lambda place: _natural(names[place]))
    number_of = np.empty(len(names), dtype=np.int64)
    number_of[order] = np.arange(len(names))
    return tuple(names[place] for place in order), number_of[which]


def _natural(name: str) -> str:
    """A key that puts numbers inside names in the order of their size: each has its length before it."""
    return re.sub(r"0*([0-9]+)", lambda number: f"{len(number[1]):06d}{number[1]}", name)


def _row(values: Any, key: str, source: str) -> np.ndarray:
    try:
        return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except Exception as error:  # a user's own type may raise anything
        raise BadInput(f"{source}: {key} is no array ({first_line(error)}); {NEITHER}") from error


def _plain(ids: np.ndarray, key: str, source: str) -> np.ndarray:
    """Objects, as a data frame keeps strings, as what they are: all strings, or all whole numbers."""
    values = ids.tolist() if ids.ndim == 1 else []
    for kind in (str, int):
        if values and all(type(value) is kind for value in values):
            return np.array(values)
    odd = next(
        (k for k, value in enumerate(values) if type(value) is not type(values[0]) or value != value), 0
    )
    shown = f"{quoted(values[odd])} of image {odd}" if values else f"an array of shape {ids.shape}"
    raise BadInput(f"{source}: {key} ids that are objects, such as {shown}; {NEITHER}")
