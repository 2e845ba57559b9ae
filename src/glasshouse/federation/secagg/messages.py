"""What travels between the clients and the server in one round of secure aggregation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from glasshouse.federation.secagg.ring import Ring, Words


class Refused(Exception):
    """A client does not answer a request that an honest server would not make; the message says why."""


@dataclass(frozen=True)
class Terms:
    """What the server announces before a round.

    `threshold` clients are needed to open a secret; `largest` is the most samples that any of them has.
    """

    ring: Ring
    threshold: int
    largest: int


@dataclass(frozen=True)
class Keys:
    """Round 0: a client's public keys, for sealing messages to it and for agreeing on masks."""

    client: int
    sealing: bytes
    masking: bytes


@dataclass(frozen=True)
class Sealed:
    """Round 1: the shares of one client for another, readable by that one alone."""

    sender: int
    recipient: int
    text: bytes
    tag: bytes


@dataclass(frozen=True, eq=False)
class Masked:
    """Round 2: a client's quantised update under its masks, shape (P + 1,)."""

    client: int
    words: Words


@dataclass(frozen=True)
class Request:
    """Round 3: whose own masks are to be opened, and whose masking keys."""

    survivors: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True)
class Revealed:
    """Round 3: one client's shares of the survivors' seeds, and of the masking keys of those who left."""

    client: int
    seeds: Mapping[int, bytes]
    keys: Mapping[int, bytes]


def needed(clients: int, share: float) -> int:
    """How many of `clients` make up a `share` of them: more than half in any case."""
    return max(clients // 2 + 1, math.ceil(share * clients - 1e-9))


def holders(keys: Mapping[int, Keys]) -> dict[int, int]:
    """Every client's number as a holder of shares: 1, 2, ... in the order of their names."""
    return {client: place for place, client in enumerate(sorted(keys), start=1)}
