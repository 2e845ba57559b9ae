"""Whose the training images are, where the data say: clients by their ids, or users that are clients."""

from dataclasses import dataclass

import numpy as np

from glasshouse.data.dataset import Dataset
from glasshouse.data.ids import numbered
from glasshouse.data.partitions import partition as divide
from glasshouse.errors import BadInput
from glasshouse.registry import parse_spec


@dataclass(frozen=True, eq=False)
class Owners:
    """The `names` of those that hold images, and the number of each image's, shape (N,), -1 for nobody's."""

    names: tuple[str, ...]
    number_of: np.ndarray
    are_users: bool = False

    def in_pool(self, size: int) -> "Owners":
        """The same for a pool of `size` images, in which test images that are nobody's come last."""
        nobody = np.full(size - len(self.number_of), -1)
        return Owners(self.names, np.concatenate([self.number_of, nobody]), self.are_users)


def owners_of(dataset: Dataset, way: str, clients: int | None, seed: int) -> Owners | None:
    """Who holds which training image, as the data and the partition `way` say; None where they do not.

    With `by-user` the users may be grouped into fewer `clients`.
    """
    partition, _ = parse_spec(way, "partition")
    if dataset.clients is not None:
        names, number_of = numbered(dataset.clients)
        if partition != "by-client":
            raise BadInput(
                f"partition {way!r}, but the data name {len(names)} clients; leave the partition out, or "
                "the client ids"
            )
        if clients not in (None, len(names)):
            raise BadInput(
                f"{dataset.name}: {clients} clients asked for, but the data name {len(names)}; leave the "
                "number of clients out"
            )
        return Owners(names, number_of)
    if partition == "by-client":
        raise BadInput(f"partition {way!r}: the data name no clients; give client ids, or another partition")
    if partition != "by-user":
        return None
    shares = divide(way, dataset.train.y.numpy(), clients, seed, dataset.users)
    assert dataset.users is not None
    names, number_of = numbered(dataset.users)
    if len(shares) == len(names):
        return Owners(names, number_of, are_users=True)
    for group, positions in enumerate(shares):
        number_of[positions] = group
    return Owners(tuple(map(str, range(len(shares)))), number_of)
