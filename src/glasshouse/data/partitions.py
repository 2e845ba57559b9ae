"""Ways to divide training images among clients: each image goes to one client, and no client is empty."""

import inspect

import numpy as np

from glasshouse.data.registry import PARTITIONS
from glasshouse.errors import BadInput
from glasshouse.options import check_number, check_whole
from glasshouse.registry import parse_spec

REDRAWS = 20


def partition(
    spec: str, y: np.ndarray, clients: int | None, seed: int, users: np.ndarray | None = None
) -> list[np.ndarray]:
    """The positions of each client's images among those with labels `y`, as `spec` says.

    `spec` is a name, perhaps with options: `dirichlet(alpha=0.5)`. `by-user` needs `users`, one id for each
    image; it alone may leave the number of clients open (None).
    """
    name, options = parse_spec(spec, PARTITIONS.kind)
    function = PARTITIONS.load(name)
    if function in (by_user, by_client):
        if users is None:
            raise BadInput(
                f"partition {spec!r}: the data name no users; give user ids or choose iid or dirichlet"
            )
        arguments = (users, clients, seed)
    else:
        if clients is None:
            raise BadInput(f"partition {spec!r} needs the number of clients; give it, or choose by-user")
        arguments = (y, clients, seed)
    try:
        inspect.signature(function).bind(*arguments, **options)
    except TypeError as error:
        known = list(inspect.signature(function).parameters)[3:]
        raise BadInput(f"partition {spec!r}: {error}; its options: {', '.join(known) or 'none'}") from error
    positions: list[np.ndarray] = function(*arguments, **options)
    return positions


def drawn_by_labels(spec: str) -> bool:
    """Whether a partition needs labels alone, so that it divides whatever images an adversary has."""
    return parse_spec(spec, PARTITIONS.kind)[0] in ("iid", "shards", "dirichlet")


def iid(y: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    """At random, in equal shares."""
    _check_clients(len(y), clients)
    shuffled = np.random.default_rng(seed).permutation(len(y))
    return [np.sort(share) for share in np.array_split(shuffled, clients)]


def shards(y: np.ndarray, clients: int, seed: int, per_client: int = 2) -> list[np.ndarray]:
    """Sorted by label and cut into equal shards, `per_client` to each client, who so sees few classes."""
    check_whole("partition shards", "per_client", per_client, 1)
    _check_clients(len(y), clients, per_client, "per_client")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(y))
    by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
    pieces = np.array_split(by_label, clients * per_client)
    dealt = rng.permutation(len(pieces)).reshape(clients, per_client)
    return [np.sort(np.concatenate([pieces[piece] for piece in hand])) for hand in dealt]


def dirichlet(
    y: np.ndarray, clients: int, seed: int, alpha: float = 0.5, minimum: int = 1
) -> list[np.ndarray]:
    """Each class divided in proportions drawn from Dirichlet(alpha); the smaller alpha, the less alike.

    Each client has at least `minimum` images: drawn again while some client has fewer, and after 20 draws
    filled up from the largest clients.
    """
    check_number("partition dirichlet", "alpha", alpha, 0, 1e6, open_low=True)
    check_whole("partition dirichlet", "minimum", minimum, 1)
    _check_clients(len(y), clients, minimum, "minimum")
    rng = np.random.default_rng(seed)
    for _ in range(REDRAWS):
        owner = _dirichlet_draw(y, clients, rng, alpha)
        if np.bincount(owner, minlength=clients).min() >= minimum:
            break
    _fill_up(owner, clients, minimum, rng)
    return [np.flatnonzero(owner == client) for client in range(clients)]


def by_user(users: np.ndarray, clients: int | None, seed: int) -> list[np.ndarray]:
    """Each user a client or, if fewer clients are asked for, the same number of users to each."""
    names, user_of = np.unique(users, return_inverse=True)
    if clients is None:
        clients = len(names)
    _check_clients(len(users), clients)
    if clients > len(names):
        raise BadInput(
            f"partition by-user: {clients} clients for {len(names)} users; ask for at most {len(names)}"
        )
    client_of_user = np.arange(len(names))
    if clients < len(names):
        groups = np.array_split(np.random.default_rng(seed).permutation(len(names)), clients)
        for client, group in enumerate(groups):
            client_of_user[group] = client
    return [np.flatnonzero(client_of_user[user_of] == client) for client in range(clients)]


def by_client(ids: np.ndarray, clients: int | None, seed: int) -> list[np.ndarray]:
    """By the client ids that come with the data; those that have such ids are divided in no other way."""
    return by_user(ids, clients, seed)


def _dirichlet_draw(y: np.ndarray, clients: int, rng: np.random.Generator, alpha: float) -> np.ndarray:
    """The client of each image."""
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        of_class = rng.permutation(np.flatnonzero(y == label))
        proportions = rng.dirichlet(np.full(clients, alpha))
        cuts = np.rint(np.cumsum(proportions)[:-1] * len(of_class)).astype(np.int64)
        for client, share in enumerate(np.split(of_class, cuts)):
            owner[share] = client
    return owner


def _fill_up(owner: np.ndarray, clients: int, minimum: int, rng: np.random.Generator) -> None:
    """Move images, one at a time, from the largest client to the smallest until each has `minimum`."""
    sizes = np.bincount(owner, minlength=clients)
    while sizes.min() < minimum:
        largest, smallest = int(sizes.argmax()), int(sizes.argmin())
        owner[rng.choice(np.flatnonzero(owner == largest))] = smallest
        sizes[largest] -= 1
        sizes[smallest] += 1


def _check_clients(images: int, clients: int, least: int = 1, option: str = "") -> None:
    if isinstance(clients, bool) or not isinstance(clients, (int, np.integer)) or clients < 1:
        raise BadInput(f"{clients!r} clients; give a whole number from 1")
    if clients * least > images:
        asked = f"{clients} clients" + (f" with {option} {least}" if least > 1 else "")
        raise BadInput(
            f"{asked} for {images} images; each client needs at least {least}: ask for fewer clients"
        )
