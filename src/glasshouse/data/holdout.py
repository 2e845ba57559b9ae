"""Which images are trained on and which are not: drawn at random, or as the data mark them."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from glasshouse.data.dataset import Dataset
from glasshouse.data.dealing import dealt, with_the_rest
from glasshouse.data.ids import PARTS
from glasshouse.data.images import Images
from glasshouse.data.owners import Owners
from glasshouse.data.stratify import stratified
from glasshouse.errors import BadInput, quoted

SHARES_OF_ALL = {"members": 0.5, "nonmembers": 0.2, "auxiliary": 0.1, "test": 0.2}
SHARES_OF_TRAIN = {"members": 0.5, "nonmembers": 0.25, "auxiliary": 0.25}

Holdout = Literal["within-clients", "whole-clients"]
HeldOut = Literal["images", "users", "within-clients", "users-within-clients", "whole-clients", "given"]
"""What was drawn as members or not: single images or users', of all clients or of each; whole clients."""

Asked = Mapping[str, int | None]
"""The sizes that are asked for, null where they are open."""


def draw_parts(
    dataset: Dataset,
    asked: Asked,
    owners: Owners | None,
    holdout: Holdout | None,
    together: np.ndarray | None,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], HeldOut]:
    """The positions of each part in the pool: as the data mark them, else at random; and how that was done.

    Images that are `together` fall to the same part.
    """
    y, official = dataset.train.y.numpy(), dataset.test
    _check_holdout(dataset, owners, holdout)
    users = dataset.users is not None and not (owners is not None and owners.are_users)
    how: HeldOut
    if dataset.parts is not None:
        how, parts = "given", _marked(dataset, owners, asked)
    else:
        shares = SHARES_OF_ALL if official is None else SHARES_OF_TRAIN
        sizes = part_sizes(len(y), shares, asked, dataset.name)
        amounts = list(sizes.values())
        if owners is None:
            how, drawn = "users" if users else "images", stratified(y, amounts, rng, together)
        elif holdout == "whole-clients":
            drawn = stratified(y, amounts, rng, owners.number_of)
            how, drawn = "whole-clients", with_the_rest(drawn, amounts, owners.number_of)
        else:
            how = "users-within-clients" if users else "within-clients"
            drawn = dealt(amounts, owners.number_of, y, rng, together)
        parts = dict(zip(sizes, drawn))
        _check_drawn(dataset.name, sizes, parts, how)
    if official is not None:
        parts["test"] = len(y) + _from_official(official, asked["test"], rng, dataset.name)
    return parts, how


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


def _marked(dataset: Dataset, owners: Owners | None, asked: Asked) -> dict[str, np.ndarray]:
    """The positions of each part as the data mark them; every owner has members."""
    assert dataset.parts is not None
    marks, name = dataset.parts, dataset.name
    contradicting = [f"{size} {part}" for part, size in asked.items() if size is not None]
    if dataset.test is not None:
        contradicting = [words for words in contradicting if not words.endswith(" test")]
        if (marks == "test").any():
            raise BadInput(
                f"{name}: images are marked test, and there are test images beside; give one of both"
            )
    if contradicting:
        raise BadInput(
            f"{name}: {contradicting[0]} asked for, but the data mark which images are of which part; leave "
            "one of both out"
        )
    parts = {part: np.flatnonzero(marks == mark) for mark, part in PARTS.items()}
    if not len(parts["members"]):
        raise BadInput(f"{name}: no image is marked member; mark those that are trained on")
    if dataset.test is None and not len(parts["test"]):
        raise BadInput(f"{name}: no image is marked test; mark some, or give x_test and y_test")
    if owners is not None:
        bare = np.setdiff1d(owners.number_of, owners.number_of[parts["members"]])
        if len(bare):
            raise BadInput(
                f"{name}: client {quoted(owners.names[bare[0]])} has "
                f"{(owners.number_of == bare[0]).sum()} images, none of them marked member; mark one, or "
                "take the client out"
            )
    return parts


def _from_official(test: Images, size: int | None, rng: np.random.Generator, source: str) -> np.ndarray:
    if size is None:
        return np.arange(len(test))
    if size > len(test):
        raise BadInput(
            f"{source}: {size} test images asked for, {len(test)} there; ask for at most {len(test)}"
        )
    return stratified(test.y.numpy(), [size], rng)[0]


def _check_holdout(dataset: Dataset, owners: Owners | None, holdout: Holdout | None) -> None:
    if holdout is None:
        return
    if dataset.parts is not None:
        raise BadInput(
            f"holdout = {holdout!r}, but the data mark which images are of which part; leave holdout out"
        )
    if owners is None:
        raise BadInput(
            f"holdout = {holdout!r}, but the data name no clients; give a client array, or the "
            "partition by-user with a user array"
        )


def _check_drawn(
    source: str, sizes: Mapping[str, int], drawn: Mapping[str, np.ndarray], held_out: HeldOut
) -> None:
    what = {"whole-clients": "client", "users": "user", "users-within-clients": "user"}.get(held_out)
    few = f"{what} has few enough images" if what else "image has few enough copies"
    for name, positions in drawn.items():
        if sizes[name] and not len(positions):
            raise BadInput(f"{source}: no {few} for {sizes[name]} {name}; ask for more or set {name} to 0")
