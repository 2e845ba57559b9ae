"""Who holds what: clients' training images, non-members, the adversary's auxiliary images, test images."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from glasshouse.data.dataset import Dataset
from glasshouse.data.duplicates import first_copies, shared, without_copies
from glasshouse.data.holdout import SHARES_OF_ALL, HeldOut, Holdout, draw_parts
from glasshouse.data.ids import numbered
from glasshouse.data.images import Images, checked
from glasshouse.data.own_partition import is_own, own_partition
from glasshouse.data.owners import Owners, owners_of
from glasshouse.data.partitions import partition as divide
from glasshouse.data.positions import as_positions, check_disjoint
from glasshouse.errors import BadInput

MANY_COPIES = 0.01
"""Share of the training images from which copies of others are too many to be left out."""

CLIENTS = 10
"""Among how many clients members are divided, where neither the data nor the caller say."""

Parts = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Split:
    """Positions in `pool` of each client's images and of the other parts; no position is in two of them.

    `duplicates` says how many images of the data set have the same pixels as an earlier one, `left_out` how
    many of those no part has, so that no two parts have the same image. Where the data say whose the images
    are, `owners` does; `held_out` says how the parts were drawn, `partition` how clients got their images.
    Where whole users or clients were drawn, `groups` has the number of each image's, shape (N,).
    """

    pool: Images
    clients: tuple[np.ndarray, ...]
    nonmembers: np.ndarray
    auxiliary: np.ndarray
    test: np.ndarray
    duplicates: int = 0
    left_out: int = 0
    owners: Owners | None = None
    held_out: HeldOut = "given"
    official_test: bool = False
    partition: str = "by-client"
    groups: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("nonmembers", "auxiliary", "test"):
            object.__setattr__(self, name, as_positions(getattr(self, name), name))
        clients = tuple(as_positions(held, f"client {k}") for k, held in enumerate(self.clients))
        object.__setattr__(self, "clients", clients)
        parts = {f"client {k}": positions for k, positions in enumerate(self.clients)}
        for name, positions in parts.items():
            if len(positions) == 0:
                raise BadInput(f"{name} has no images; ask for fewer clients or more members")
        if not parts:
            raise BadInput("a split needs at least one client; give the positions of its images")
        parts |= {"nonmembers": self.nonmembers, "auxiliary": self.auxiliary, "test": self.test}
        check_disjoint(parts, len(self.pool))

    @property
    def members(self) -> np.ndarray:
        """Positions of all clients' images, sorted."""
        return np.sort(np.concatenate(self.clients))

    @property
    def names(self) -> tuple[str, ...]:
        """What each client is called: the id that the data give it, else its number."""
        if self.owners is None:
            return tuple(map(str, range(len(self.clients))))
        return tuple(self.owners.names[self.owners.number_of[positions[0]]] for positions in self.clients)

    @property
    def whole_groups(self) -> bool:
        """Whether whole users or clients, not single images, were drawn as members."""
        return self.held_out in ("users", "users-within-clients", "whole-clients")

    def origin(self, positions: np.ndarray) -> np.ndarray:
        """The number of the client that each image at `positions` came from, -1 where the data do not say."""
        if self.owners is None:
            return np.full(len(positions), -1)
        client_of = np.full(len(self.owners.names) + 1, -1)  # nobody's images, numbered -1, find the last
        client_of[[self.owners.number_of[held[0]] for held in self.clients]] = np.arange(len(self.clients))
        origin: np.ndarray = client_of[self.owners.number_of[positions]]
        return origin

    def client(self, k: int) -> Images:
        """A copy of the images of client `k`."""
        return self.pool[self.clients[k]]

    def images(self, part: str) -> Images:
        """A copy of the images of `members`, `nonmembers`, `auxiliary` or `test`."""
        if part not in SHARES_OF_ALL:
            raise BadInput(f"no part {part!r} in a split; choose one of {', '.join(SHARES_OF_ALL)}")
        positions: np.ndarray = getattr(self, part)
        return self.pool[positions]

    def shared_images(self) -> dict[tuple[str, str], int]:
        """How many different images, by their pixels, two parts have in common, for each two that have any.

        The parts are `members`, `nonmembers`, `auxiliary` and `test`. The last entry, if there is one, counts
        those that several clients have, which is no fault: `("a client", "another client")`.
        """
        first = first_copies(self.pool.x)
        counts = shared({name: getattr(self, name) for name in SHARES_OF_ALL}, first)
        held = np.concatenate([np.unique(first[positions]) for positions in self.clients])
        at_several = int((np.unique(held, return_counts=True)[1] > 1).sum())
        return counts | ({("a client", "another client"): at_several} if at_several else {})


def split(
    dataset: Dataset,
    *,
    clients: int | None = None,
    partition: str | None = None,
    holdout: Holdout | None = None,
    members: int | None = None,
    nonmembers: int | None = None,
    auxiliary: int | None = None,
    test: int | None = None,
    seed: int = 0,
) -> Split:
    """Divide a data set among clients, non-members, auxiliary and test images, each with all classes.

    Data that name clients are taken at their word, and the other parts are drawn within each client, or are
    whole clients, as `holdout` says. Otherwise members are divided among `clients`, ten unless it is said.

    Sizes left open are 50, 25 and 25% of the training images and all official test images, or 50, 20, 10 and
    20% where there are none; less where the sizes asked for leave less. A user's images stay in one part,
    unless each user is a client.

    Images with the same pixels stay in one part too. Where a few are copies of others, those that fall to a
    later part than another copy are left out; where many are, they are drawn together, like a user's.
    """
    asked = {"members": members, "nonmembers": nonmembers, "auxiliary": auxiliary, "test": test}
    _check_asked(asked)
    draw_seed, divide_seed = (int(state) for state in np.random.SeedSequence(seed).generate_state(2))
    way = partition or ("iid" if dataset.clients is None else "by-client")
    owners = owners_of(dataset, way, None if holdout == "whole-clients" else clients, divide_seed)
    first = first_copies(dataset.pool.x)
    users = None if owners is not None and owners.are_users else dataset.users
    together = _kept_together(users, first[: len(dataset.train)])
    rng = np.random.default_rng(draw_seed)
    drawn, held_out = draw_parts(dataset, asked, owners, holdout, together, rng)
    groups = _drawn_whole(dataset, owners, held_out)
    parts = _without_shared(dataset.name, drawn, first)
    held = parts["members"]
    holders = None if owners is None else np.unique(owners.number_of[held])
    if owners is None or holders is None:
        shares = _divided(dataset, held, way, clients, divide_seed)
    elif owners.are_users and clients is not None and clients != len(holders):
        shares, owners = _divided(dataset, held, way, clients, divide_seed), None
    else:
        shares = [np.flatnonzero(owners.number_of[held] == number) for number in holders]
    if clients is not None and len(shares) != clients:
        raise BadInput(
            f"{dataset.name}: {clients} clients asked for, but {way!r} gives the members to {len(shares)}; "
            "leave the number of clients out"
        )
    return Split(
        dataset.pool,
        tuple(held[positions] for positions in shares),
        parts["nonmembers"],
        parts["auxiliary"],
        parts["test"],
        duplicates=_copies(first),
        left_out=_missing(drawn, parts),
        owners=None if owners is None else owners.in_pool(len(dataset.pool)),
        held_out=held_out,
        official_test=dataset.test is not None,
        partition=way,
        groups=groups,
    )


def as_given(split: Split) -> Split:
    """A user's own split, checked, without images that an earlier part has too."""
    checked(split.pool, "the split", every_class=False)
    if not len(split.test):
        raise BadInput("the split has no test images; give the positions of some")
    first = first_copies(split.pool.x)
    drawn = {name: getattr(split, name) for name in SHARES_OF_ALL}
    parts = _without_shared("the split", drawn, first)
    return replace(
        split,
        nonmembers=parts["nonmembers"],
        auxiliary=parts["auxiliary"],
        test=parts["test"],
        duplicates=_copies(first),
        left_out=_missing(drawn, parts),
    )


def _divided(
    dataset: Dataset, held: np.ndarray, way: str, clients: int | None, seed: int
) -> list[np.ndarray]:
    """The members among so many clients, ten if nobody says how many."""
    users = None if dataset.users is None else dataset.users[held]
    wanted = CLIENTS if clients is None else clients
    if is_own(way):
        return own_partition(way, dataset.train, held, users, wanted, seed)
    return divide(way, dataset.train.y.numpy()[held], wanted, seed, users)


def _drawn_whole(dataset: Dataset, owners: Owners | None, held_out: HeldOut) -> np.ndarray | None:
    """The number of each image's user or client, whichever was drawn whole; -1 for nobody's."""
    if held_out == "whole-clients" and owners is not None:
        return owners.in_pool(len(dataset.pool)).number_of
    if held_out in ("users", "users-within-clients") and dataset.users is not None:
        names, number_of = numbered(dataset.users)
        return Owners(names, number_of).in_pool(len(dataset.pool)).number_of
    return None


def _without_shared(source: str, drawn: Parts, first: np.ndarray) -> Parts:
    parts = without_copies(drawn, first)
    for name, positions in parts.items():
        if len(drawn[name]) and not len(positions):
            raise BadInput(
                f"{source}: each of the {len(drawn[name])} images for {name} has a copy in another "
                f"part; remove copies from the data or set {name} to 0"
            )
    return parts


def _copies(first: np.ndarray) -> int:
    return len(first) - len(np.unique(first))


def _missing(drawn: Parts, parts: Parts) -> int:
    return sum(map(len, drawn.values())) - sum(map(len, parts.values()))


def _kept_together(users: np.ndarray | None, first: np.ndarray) -> np.ndarray | None:
    """Which images go to the same part: a user's, or copies if there are many; None if each goes alone."""
    if users is None and np.mean(first != np.arange(len(first))) > MANY_COPIES:
        return first
    return users


def _check_asked(asked: Mapping[str, int | None]) -> None:
    for name, size in asked.items():
        least = 1 if name == "members" else 0
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < least):
            raise BadInput(f"{size!r} {name}; give a whole number from {least}")
