"""Divide members among clients by a function of the user's own."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.data.images import Images
from glasshouse.data.positions import as_positions, check_disjoint
from glasshouse.errors import BadInput, named, quoted
from glasshouse.registry import import_function, parse_spec


def is_own(spec: str) -> bool:
    """Whether a partition is the user's own, `package.module:function`."""
    return ":" in parse_spec(spec, "partition")[0]


def own_partition(
    spec: str, train: Images, held: np.ndarray, users: np.ndarray | None, clients: int, seed: int
) -> list[np.ndarray]:
    """The positions among the members of each client's images, as the user's function says.

    `held` are the members' positions in `train`, `users` theirs. The function is called with those of the
    following that it names: `x` (N, C, H, W) in [0, 1], `y` and `positions` (N,), `users` (N,) or None,
    `names` of the classes, `clients` and `seed`; and with the options that the spec carries.
    """
    name, options = parse_spec(spec, "partition")
    function, source = import_function(name, "partition"), f"partition {quoted(spec)}"
    known: dict[str, Callable[[], Any]] = {
        "x": lambda: train.x.numpy()[held],
        "y": lambda: train.y.numpy()[held],
        "positions": held.copy,
        "users": lambda: None if users is None else users.copy(),
        "names": lambda: train.names,
        "clients": lambda: clients,
        "seed": lambda: seed,
    }
    signature = inspect.signature(function)
    given = {key: value() for key, value in known.items() if key in signature.parameters}
    try:
        signature.bind(**given, **options)
    except TypeError as error:
        raise BadInput(f"{source}: {error}; it may take {', '.join(known)}, and options") from error
    try:
        returned = function(**given, **options)
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        raise BadInput(f"{source} failed with {named(error)}; call it yourself to see where") from error
    return _checked(returned, len(held), source)


def _checked(returned: Any, members: int, source: str) -> list[np.ndarray]:
    """What a function returned, if it is a list of disjoint positions, none of them empty."""
    if not isinstance(returned, list | tuple) or not returned:
        raise BadInput(
            f"{source} returned {quoted(returned)}; return a list with the positions of each client's "
            "images among the members"
        )
    try:
        shares = [as_positions(share, f"client {client}") for client, share in enumerate(returned)]
        if empty := [client for client, share in enumerate(shares) if not share.size]:
            raise BadInput(f"client {empty[0]} gets no image; leave the client out, or give it one")
        check_disjoint({f"client {k}": share for k, share in enumerate(shares)}, members)
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from error
    return [np.sort(share).astype(np.int64) for share in shares]
