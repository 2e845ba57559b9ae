"""Draw disjoint parts of a data set that each have the classes in the same proportions."""

from collections.abc import Sequence

import numpy as np

from glasshouse.errors import BadInput


def stratified(
    y: np.ndarray, sizes: Sequence[int], rng: np.random.Generator, users: np.ndarray | None = None
) -> list[np.ndarray]:
    """Disjoint sorted positions into the labels `y`, one array for each of `sizes`.

    A part gets one image of each class as long as they last, then all classes in proportion. With `users` all
    images of a user go to the same part or to none, and a size is the most that a part gets.
    """
    if sum(sizes) > len(y):
        raise BadInput(f"{sum(sizes)} images asked for, {len(y)} there; ask for fewer")
    classes, labels = np.unique(y, return_inverse=True)
    counts = apportion(np.bincount(labels, minlength=len(classes)), sizes, rng)
    if users is None:
        return _draw_images(labels, counts, rng)
    return _draw_users(labels, counts, users, rng)


def apportion(available: np.ndarray, sizes: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """How many images of each class each part gets, shape (parts, classes); its rows sum to `sizes`."""
    left = available.copy()
    counts = np.zeros((len(sizes), len(available)), dtype=np.int64)
    smallest_first = np.argsort(sizes, kind="stable")
    for part in smallest_first:
        has_some = rng.permutation(np.flatnonzero(left))[: sizes[part]]
        counts[part, has_some] = 1
        left[has_some] -= 1
    for part in smallest_first:
        missing = sizes[part] - counts[part].sum()
        if missing:
            more = _in_proportion(int(missing), left)
            counts[part] += more
            left -= more
    return counts


def _in_proportion(size: int, available: np.ndarray) -> np.ndarray:
    """Whole numbers that sum to `size`, in proportion to `available` by the largest remainders."""
    quotas: np.ndarray = size * available / available.sum()
    counts: np.ndarray = np.floor(quotas).astype(np.int64)
    by_remainder = np.argsort(counts - quotas, kind="stable")
    counts[by_remainder[: size - counts.sum()]] += 1
    return counts


def _draw_images(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    parts: list[list[np.ndarray]] = [[] for _ in counts]
    for label in range(counts.shape[1]):
        shuffled = rng.permutation(np.flatnonzero(labels == label))
        for part, drawn in zip(parts, np.split(shuffled, np.cumsum(counts[:, label]))):
            part.append(drawn)
    return [np.sort(np.concatenate(part)) for part in parts]


def _draw_users(
    labels: np.ndarray, counts: np.ndarray, users: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Give each user, the largest first, to the part with room that lacks most of its share of their classes.

    The lack is relative, so that large and small users are spread over the parts in the same proportions:
    members must not differ from non-members in anything but membership.
    """
    owners, owner_of = np.unique(users, return_inverse=True)
    has = np.zeros((len(owners), counts.shape[1]), dtype=np.int64)
    np.add.at(has, (owner_of, labels), 1)
    unused = np.bincount(labels) - counts.sum(0)
    wants = np.vstack([counts, unused])
    lacks, room = wants.copy(), wants.sum(1)
    goes_to = np.full(len(owners), len(counts))
    order = rng.permutation(len(owners))
    order = order[np.argsort(-has[order].sum(1), kind="stable")]
    for owner in order:
        size = has[owner].sum()
        need = (lacks / np.maximum(wants, 1)) @ has[owner]
        need[room < size] = -np.inf
        part = int(np.argmax(need))
        if room[part] >= size:
            goes_to[owner] = part
            lacks[part] -= has[owner]
            room[part] -= size
    return [np.flatnonzero(goes_to[owner_of] == part) for part in range(len(counts))]
