"""Who holds what: clients' training images, non-members, the adversary's auxiliary images, test images."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from glasshouse.data.dataset import Dataset
from glasshouse.data.duplicates import first_copies, shared, without_copies
from glasshouse.data.images import Images
from glasshouse.data.partitions import partition as divide
from glasshouse.data.stratify import stratified
from glasshouse.errors import BadInput

SHARES_OF_ALL = {"members": 0.5, "nonmembers": 0.2, "auxiliary": 0.1, "test": 0.2}
SHARES_OF_TRAIN = {"members": 0.5, "nonmembers": 0.25, "auxiliary": 0.25}

MANY_COPIES = 0.01
"""Share of the training images from which copies of others are too many to be left out."""


@dataclass(frozen=True, eq=False)
class Split:
    """Positions in `pool` of each client's images and of the other parts; no position is in two of them.

    `duplicates` says how many images of the data set have the same pixels as an earlier one, `left_out` how
    many of those no part has, so that no two parts have the same image.
    """

    pool: Images
    clients: tuple[np.ndarray, ...]
    nonmembers: np.ndarray
    auxiliary: np.ndarray
    test: np.ndarray
    duplicates: int = 0
    left_out: int = 0

    def __post_init__(self) -> None:
        parts = {f"client {k}": positions for k, positions in enumerate(self.clients)}
        for name, positions in parts.items():
            if len(positions) == 0:
                raise BadInput(f"{name} has no images; ask for fewer clients or more members")
        if not parts:
            raise BadInput("a split needs at least one client; give the positions of its images")
        parts |= {"nonmembers": self.nonmembers, "auxiliary": self.auxiliary, "test": self.test}
        _check_disjoint(parts, len(self.pool))

    @property
    def members(self) -> np.ndarray:
        """Positions of all clients' images, sorted."""
        return np.sort(np.concatenate(self.clients))

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
    clients: int | None,
    partition: str = "iid",
    members: int | None = None,
    nonmembers: int | None = None,
    auxiliary: int | None = None,
    test: int | None = None,
    seed: int = 0,
) -> Split:
    """Divide a data set among clients, non-members, auxiliary and test images, each with all classes.

    Sizes left open are 50, 25 and 25% of the training images and all official test images, or 50, 20, 10 and
    20% where there are none; less where the sizes asked for leave less. A user's images stay in one part,
    which then has at most the size asked for.

    Images with the same pixels stay in one part too. Where a few are copies of others, those that fall to a
    later part than another copy are left out; where many are, they are drawn together, like a user's.
    """
    train, users, official = dataset.train, dataset.users, dataset.test
    asked = {"members": members, "nonmembers": nonmembers, "auxiliary": auxiliary, "test": test}
    _check_asked(asked)
    draw_seed, divide_seed = (int(state) for state in np.random.SeedSequence(seed).generate_state(2))
    rng = np.random.default_rng(draw_seed)
    y = train.y.numpy()
    shares = SHARES_OF_ALL if official is None else SHARES_OF_TRAIN
    sizes = part_sizes(len(y), shares, asked, dataset.name)
    first = first_copies(dataset.pool.x)
    together = _kept_together(users, first[: len(y)])
    drawn = dict(zip(sizes, stratified(y, list(sizes.values()), rng, together)))
    for name, positions in drawn.items():
        if sizes[name] and not len(positions):
            few = "user has few enough images" if together is users else "image has few enough copies"
            raise BadInput(
                f"{dataset.name}: no {few} for {sizes[name]} {name}; ask for more or set {name} to 0"
            )
    if official is not None:
        drawn["test"] = len(y) + _from_official(official, test, rng, dataset.name)
    parts = without_copies(drawn, first)
    for name, positions in parts.items():
        if len(drawn[name]) and not len(positions):
            raise BadInput(
                f"{dataset.name}: each of the {len(drawn[name])} images for {name} has a copy in another "
                f"part; remove copies from the data or set {name} to 0"
            )
    held = parts["members"]
    shares_of_clients = divide(
        partition, y[held], clients, divide_seed, None if users is None else users[held]
    )
    return Split(
        dataset.pool,
        tuple(held[positions] for positions in shares_of_clients),
        parts["nonmembers"],
        parts["auxiliary"],
        parts["test"],
        duplicates=len(first) - len(np.unique(first)),
        left_out=sum(map(len, drawn.values())) - sum(map(len, parts.values())),
    )


def part_sizes(
    total: int, shares: Mapping[str, float], asked: Mapping[str, int | None], source: str
) -> dict[str, int]:
    """The size of each part: as asked, or its share of `total`, or of what the sizes asked for leave."""
    fixed = {name: size for name in shares if (size := asked[name]) is not None}
    left = total - sum(fixed.values())
    open_share = sum(share for name, share in shares.items() if name not in fixed)
    scale = min(total, left / open_share) if open_share else 0
    # The small addend keeps 0.1 * 30 from being rounded down to 2.
    sizes = {name: fixed.get(name, int(scale * share + 1e-9)) for name, share in shares.items()}
    if left < 0 or any(size == 0 and name not in fixed for name, size in sizes.items()):
        wanted = " + ".join(f"{size} {name}" for name, size in fixed.items())
        raise BadInput(
            f"{source}: {wanted or 'the parts'} of {total} images leave too few for "
            f"{', '.join(shares)}; ask for fewer or set a part to 0"
        )
    return sizes


def _from_official(test: Images, size: int | None, rng: np.random.Generator, source: str) -> np.ndarray:
    if size is None:
        return np.arange(len(test))
    if size > len(test):
        raise BadInput(
            f"{source}: {size} test images asked for, {len(test)} there; ask for at most {len(test)}"
        )
    return stratified(test.y.numpy(), [size], rng)[0]


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


def _check_disjoint(parts: Mapping[str, np.ndarray], total: int) -> None:
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
