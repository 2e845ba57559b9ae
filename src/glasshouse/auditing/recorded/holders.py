"""Who of a record's clients held which images, as far as the user says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glasshouse.data.arrays import read_arrays
from glasshouse.data.dataset import unit_pixels
from glasshouse.data.duplicates import first_copies, without_copies
from glasshouse.data.ids import checked_ids, numbered
from glasshouse.data.images import Images, checked
from glasshouse.data.parts import read_pair
from glasshouse.data.resizing import resized
from glasshouse.data.split import Split
from glasshouse.errors import BadInput, quoted
from glasshouse.evidence.truth import NOBODY
from glasshouse.models.shapes import Shape

PARTS = ("members", "nonmembers", "auxiliary")


@dataclass(frozen=True, eq=False)
class Holders:
    """One `pool` of all images that were given, and the positions in it of each of `PARTS`.

    `clients` has the positions of each client of the record, by its number; it is null where nobody says who
    of several held which. `duplicates` and `left_out` are those of a `Split`.
    """

    pool: Images
    parts: Mapping[str, np.ndarray]
    clients: tuple[np.ndarray, ...] | None
    duplicates: int
    left_out: int

    def split(self) -> Split:
        """The same as a split: of the clients that hold images, or of all members in one place."""
        known = self.clients or (self.parts["members"],)
        return Split(
            self.pool,
            tuple(held for held in known if len(held)),
            self.parts["nonmembers"],
            self.parts["auxiliary"],
            NOBODY,
            duplicates=self.duplicates,
            left_out=self.left_out,
            partition="by-client" if self.clients else "iid",
        )


def ordered(names: Sequence[str]) -> dict[str, int]:
    """The number of each client of a record: names in natural order, whoever took part first.

    >>> ordered(["ward 10", "ward 9"])
    {'ward 9': 0, 'ward 10': 1}
    """
    different = numbered(np.array(names, dtype=np.str_))[0] if names else ()
    return {name: number for number, name in enumerate(different)}


def read_holders(
    given: Mapping[str, Any],
    numbers: Mapping[str, int],
    shape: Shape | None,
    classes: int | None,
    side: int | None,
) -> Holders | None:
    """The images that were given, of `shape` and with labels below `classes` where these are known.

    Each of `PARTS` is the path of an .npz file, `Images` or arrays (x, y); that of the members may have an
    array `client`, or a third one, with the names of clients.
    """
    if not given:
        return None
    if "nonmembers" in given and "members" not in given:
        raise BadInput("non-members are compared with members; give --members too")
    pairs = {name: read_pair(name, _pair(given[name])) for name in PARTS if name in given}
    shapes = {name: x.shape[1:] for name, (x, _) in pairs.items()}
    if len({*shapes.values()}) > 1:
        listed = ", ".join(f"{found} of the {name}" for name, found in shapes.items())
        raise BadInput(f"images of different shapes: {listed}; give all of them the same")
    labels = np.concatenate([y for _, y in pairs.values()]).astype(np.int64)
    classes = classes or int(labels.max()) + 1
    images = Images(unit_pixels([x for x, _ in pairs.values()]), torch.from_numpy(labels), classes)
    pool = resized(checked(images, f"the {' and '.join(pairs)}", every_class=False), side)
    if shape is not None and pool.shape != tuple(shape):
        raise BadInput(
            f"the images have shape {pool.shape}, those of the record {tuple(shape)}; give its clients' own"
        )
    parts, duplicates, left_out = _parts(pool, {name: len(y) for name, (_, y) in pairs.items()})
    clients = None
    if "members" in given:
        clients = _clients(given["members"], len(pairs["members"][1]), numbers, parts["members"])
    return Holders(pool, parts, clients, duplicates, left_out)


def _parts(pool: Images, sizes: Mapping[str, int]) -> tuple[dict[str, np.ndarray], int, int]:
    """The positions of each part; of images that stand in several, the first part keeps them."""
    ends = dict(zip(sizes, np.cumsum([*sizes.values()])))
    positions = {name: np.arange(ends[name] - size, ends[name]) for name, size in sizes.items()}
    first = first_copies(pool.x)
    kept = dict.fromkeys(PARTS, NOBODY) | without_copies(positions, first)
    if "nonmembers" in sizes and not len(kept["nonmembers"]):
        raise BadInput(
            "every non-member is a member too, pixel by pixel; give images that were not trained on"
        )
    return kept, len(first) - len(np.unique(first)), len(pool) - sum(map(len, kept.values()))


def _pair(source: Any) -> Any:
    """Images and labels alone."""
    return source[:2] if isinstance(source, tuple) and len(source) == 3 else source


def _clients(
    members: Any, count: int, numbers: Mapping[str, int], kept: np.ndarray
) -> tuple[np.ndarray, ...] | None:
    """The positions of each client's members, which come first in the pool."""
    names = _names(members, count)
    if names is None:
        return (kept,) if len(numbers) == 1 else None
    unknown = [name for name in dict.fromkeys(names.tolist()) if name not in numbers]
    if unknown:
        known = ", ".join(list(numbers)[:5]) + (", ..." if len(numbers) > 5 else "")
        raise BadInput(
            f"the members name client {quoted(unknown[0])}, which took part in no round; clients are {known}"
        )
    number_of = np.array([numbers[name] for name in names.tolist()])
    return tuple(kept[number_of[kept] == number] for number in range(len(numbers)))


def _names(members: Any, count: int) -> np.ndarray | None:
    """The client that each member names, as text; null where they name none."""
    ids, source = None, "the members"
    if isinstance(members, str | Path):
        ids, source = read_arrays(Path(members).expanduser()).get("client"), str(members)
    elif isinstance(members, tuple) and len(members) == 3:
        ids = members[2]
    return None if ids is None else checked_ids(ids, count, "client", source).astype(np.str_)
