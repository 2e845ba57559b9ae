"""What travels between the clients and the server in one round of secure aggregation."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from glasshouse.errors import BadInput, quoted
from glasshouse.federation.secagg.ring import Ring, Words

SEALED_BYTES = 48  # two shares and the tag of their encryption
COMMITMENT_BYTES = 64  # to one holder's two shares
NAME_BYTES = 4  # of a client's number


class Refused(Exception):
    """A client does not answer a request that an honest server would not make; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the server announces before a round.

    An update has `length` entries. A client's secrets are shared among `holders`, itself and its neighbours,
    of which `threshold` open them. `fewest` of all clients must stay; none has more than `largest` samples.
    """

    ring: Ring
    length: int
    holders: int
    threshold: int
    fewest: int
    largest: int

    def __post_init__(self) -> None:
        for name in ("length", "holders", "threshold", "fewest", "largest"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
                raise BadInput(f"{name} = {quoted(value)} is out of range; give a whole number from 0 on")


@dataclass(frozen=True)
class Keys:
    """Round 0: a client's public keys, for sealing messages to it and for agreeing on masks."""

    client: int
    sealing: bytes
    masking: bytes


@dataclass(frozen=True)
class Shared:
    """Round 1: a client's sealed shares and its commitments to them, and its commitment to its seed.

    One block of bytes for each holder, in the order of their names; its own shares stay with it.
    """

    client: int
    sealed: bytes
    commitments: bytes
    seed: bytes


@dataclass(frozen=True)
class Sealed:
    """Round 1: the shares of one client for another, readable by that one alone, and what it committed to."""

    sender: int
    recipient: int
    text: bytes
    commitments: bytes


@dataclass(frozen=True, eq=False)
class Masked:
    """Round 2: a client's quantised update under its masks, shape (P + 1,)."""

    client: int
    words: Words


@dataclass(frozen=True)
class Request:
    """Round 3: of the clients whose shares one holds, whose own masks are to be opened, and whose keys."""

    survivors: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True)
class Revealed:
    """Round 3: one client's shares of the survivors' seeds, and of the masking keys of those who left."""

    client: int
    seeds: Mapping[int, bytes]
    keys: Mapping[int, bytes]


def wire_bytes(message: object) -> int:
    """The bytes of a message: 4 for each client's name, and its keys, shares and vectors as they are."""
    if isinstance(message, bytes):
        return len(message)
    if isinstance(message, np.ndarray):
        return message.nbytes
    if isinstance(message, Mapping):
        return sum(NAME_BYTES + wire_bytes(entry) for entry in message.values())
    if isinstance(message, tuple | list):
        return sum(map(wire_bytes, message))
    if dataclasses.is_dataclass(message):
        return sum(wire_bytes(getattr(message, field.name)) for field in dataclasses.fields(message))
    return NAME_BYTES


def needed(clients: int, share: float) -> int:
    """How many of `clients` make up a `share` of them: more than half in any case."""
    return max(clients // 2 + 1, math.ceil(share * clients - 1e-9))
