"""The server's side of secure aggregation: it passes on sealed shares, adds masked vectors, opens the sum.

A message that is not what the protocol asks for is left out and noted in `faults`, as if its client had
dropped out; where too little is left the round fails, and nothing of the updates is revealed.
"""

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.secagg.graph import neighbourhoods
from glasshouse.federation.secagg.keys import (
    KEY_BYTES,
    agree,
    commit,
    derive,
    mask_purpose,
    private_key,
    public_bytes,
)
from glasshouse.federation.secagg.masks import add_mask
from glasshouse.federation.secagg.messages import (
    COMMITMENT_BYTES,
    SEALED_BYTES,
    Keys,
    Masked,
    Request,
    Revealed,
    Sealed,
    Shared,
    Terms,
)
from glasshouse.federation.secagg.ring import Words
from glasshouse.federation.secagg.sharing import combine

TOLD = 3  # faults that a failure names


class Server:
    """One round: it holds public keys, commitments, the sum of masked vectors, and shares while it opens it.

    `neighbours` of a client hold its shares, drawn with `seed`; None: all clients.
    """

    def __init__(self, terms: Terms, neighbours: int | None = None, seed: int = 0) -> None:
        self.terms = terms
        self.faults: list[str] = []
        self.keys: dict[int, Keys] = {}
        self.sharing: dict[int, Shared] = {}
        self.masked: dict[int, None] = {}  # in the order of arrival
        self.total: Words | None = None
        self._holders: dict[int, tuple[int, ...]] = {}
        self._neighbours = neighbours
        self._seed = seed

    def collect(self, keys: Iterable[Keys]) -> None:
        """Round 0: take everyone's public keys, and draw who is whose neighbour."""
        probe = X25519PrivateKey.generate()
        seen: set[bytes] = set()
        for key in keys:
            if key.client in self.keys:
                self.faults.append(f"client {key.client} sent public keys twice")
            elif not all(_usable(public, probe) for public in (key.sealing, key.masking)):
                self.faults.append(f"client {key.client} sent public keys that cannot be used")
            elif key.sealing == key.masking or seen & {key.sealing, key.masking}:
                self.faults.append(f"client {key.client} sent a public key that is in use already")
            else:
                self.keys[key.client] = key
                seen |= {key.sealing, key.masking}
        self._enough(len(self.keys), "sent public keys")
        self._holders = neighbourhoods(tuple(self.keys), self._neighbours, self._seed)

    def directory(self, client: int) -> tuple[Keys, ...]:
        """Round 0: the public keys of a client and its neighbours, to be sent to it."""
        return tuple(self.keys[holder] for holder in self._holders[client])

    def route(self, messages: Iterable[Shared]) -> None:
        """Round 1: take everyone's sealed shares, and what they commit to."""
        for shared in messages:
            holders = len(self._holders.get(shared.client, ()))
            sizes = len(shared.sealed), len(shared.commitments), len(shared.seed)
            if not holders:
                self.faults.append(f"client {shared.client} sent shares, but no usable public keys")
            elif shared.client in self.sharing:
                self.faults.append(f"client {shared.client} sent shares twice")
            elif sizes != (holders * SEALED_BYTES, holders * COMMITMENT_BYTES, KEY_BYTES):
                self.faults.append(f"client {shared.client} sent shares of the wrong length")
            else:
                self.sharing[shared.client] = shared
        self._enough(len(self.sharing), "shared their secrets")

    def inbox(self, client: int) -> list[Sealed]:
        """Round 1: the sealed shares for one client."""
        return [
            Sealed(
                owner,
                client,
                _block(self.sharing[owner].sealed, SEALED_BYTES, self._place(owner, client)),
                self._commitments(owner, client),
            )
            for owner in self._holders[client]
            if owner != client and owner in self.sharing
        ]

    def add(self, masked: Masked) -> None:
        """Round 2: add one masked vector to the sum."""
        words, ring, length = masked.words, self.terms.ring, self.terms.length + 1
        if masked.client not in self.sharing:
            self.faults.append(f"client {masked.client} sent a vector, but shared no secrets")
        elif masked.client in self.masked:
            self.faults.append(f"client {masked.client} sent a vector twice")
        elif not isinstance(words, np.ndarray) or words.shape != (length,) or words.dtype != ring.dtype:
            shape = f"{words.dtype} of shape {words.shape}" if isinstance(words, np.ndarray) else "no array"
            expected = f"{ring.dtype} of shape {(length,)}"
            self.faults.append(f"client {masked.client} sent a vector of {shape}, {expected} is needed")
        else:
            self.masked[masked.client] = None
            if self.total is None:
                self.total = np.zeros(length, ring.dtype)
            np.add(self.total, words, out=self.total)

    def close(self) -> None:
        """Round 2 is over: check that enough holders are left for the masks of everyone."""
        self._enough(len(self.masked), "sent a masked vector")
        for client, shared in self.sharing.items():
            self.sharing[client] = dataclasses.replace(shared, sealed=b"")  # every holder has its own by now
        for client in self.sharing:
            holders = self._holders[client]
            left = sum(holder in self.masked for holder in holders)
            if left < self.terms.threshold:
                self._fail(
                    f"{left} of {len(holders)} clients that hold client {client}'s shares sent a masked "
                    f"vector, {self.terms.threshold} are needed"
                )

    def request(self, client: int) -> Request:
        """Round 3: what to ask a client in the sum for."""
        sharing = [holder for holder in self._holders[client] if holder in self.sharing]
        return Request(
            tuple(holder for holder in sharing if holder in self.masked),
            tuple(holder for holder in sharing if holder not in self.masked),
        )

    def unmask(self, answers: Iterable[Revealed]) -> Words:
        """Round 3: the sum of the quantised updates, shape (P + 1,).

        Shares that do not fit their owner's commitment are left out, and all secrets are opened and checked
        before the first mask is taken off.
        """
        shares: dict[int, dict[int, bytes]] = {client: {} for client in self.sharing}
        answered: set[int] = set()
        for answer in answers:
            if answer.client in answered:
                self.faults.append(f"client {answer.client} sent shares for unmasking twice")
            elif answer.client not in self.masked:
                self.faults.append(f"client {answer.client} sent shares for unmasking, but is not in the sum")
            else:
                answered.add(answer.client)
                self._take(answer, shares)
        self._enough(len(answered), "sent shares for unmasking")
        opened = {client: self._open(client, shares.pop(client)) for client in self.sharing}
        assert self.total is not None
        purpose = mask_purpose(self.terms, self.keys.values())
        for client, secret in opened.items():
            if client in self.masked:
                add_mask(self.total, derive(secret, b"own mask"), subtract=True)
            else:
                self._take_off(client, private_key(secret), purpose)
        return self.total

    def _take(self, answer: Revealed, shares: dict[int, dict[int, bytes]]) -> None:
        """Keep the shares of one answer that their owners committed to, as many as are needed."""
        holder = answer.client
        owners = [client for client in self._holders[holder] if client in self.sharing]
        withheld, forged = [], []
        for owner in owners:
            survives = owner in self.masked
            share = (answer.seeds if survives else answer.keys).get(owner)
            what = "seed share" if survives else "key share"
            committed = _block(self._commitments(owner, holder), KEY_BYTES, int(survives))
            if share is None:
                withheld.append(owner)
            elif not isinstance(share, bytes) or commit(what, owner, holder, share) != committed:
                forged.append(owner)
            elif len(shares[owner]) < self.terms.threshold:
                shares[owner][self._place(owner, holder) + 1] = share
        for wronged, done in ((withheld, "withheld"), (forged, "forged")):
            if wronged:
                which = f"{len(wronged)} of {len(owners)} shares, first client {wronged[0]}'s"
                self.faults.append(f"client {holder} {done} {which}")

    def _open(self, client: int, shares: dict[int, bytes]) -> bytes:
        """The seed of a client in the sum, or the masking secret of one that dropped out."""
        what = "seed" if client in self.masked else "masking key"
        if len(shares) < self.terms.threshold:
            self._fail(
                f"{len(shares)} of {len(self._holders[client])} clients sent a right share of client "
                f"{client}'s {what}, {self.terms.threshold} are needed"
            )
        secret = combine(shares)
        if client in self.masked:
            fits = commit("seed", client, client, secret) == self.sharing[client].seed
        else:
            fits = public_bytes(private_key(secret)) == self.keys[client].masking
        if not fits:
            self._fail(f"client {client} handed out shares that do not give the {what} it committed to")
        return secret

    def _take_off(self, client: int, private: X25519PrivateKey, purpose: bytes) -> None:
        """Take off what the masks shared with a dropped client left in the sum."""
        assert self.total is not None
        for survivor in self._holders[client]:
            if survivor in self.masked:
                key = agree(private, self.keys[survivor].masking, purpose)
                add_mask(self.total, key, subtract=survivor < client)

    def _place(self, owner: int, holder: int) -> int:
        """Which of the owner's shares, from 0, is the holder's."""
        return bisect_left(self._holders[owner], holder)

    def _commitments(self, owner: int, holder: int) -> bytes:
        """What the owner committed to towards the holder: its key share and its seed share."""
        return _block(self.sharing[owner].commitments, COMMITMENT_BYTES, self._place(owner, holder))

    def _enough(self, count: int, what: str) -> None:
        if count < self.terms.fewest:
            self._fail(f"{count} of {self.terms.ring.clients} clients {what}, {self.terms.fewest} are needed")

    def _fail(self, reason: str) -> NoReturn:
        faults = [*self.faults[:TOLD], *([f"and {len(self.faults) - TOLD} more"] * (len(self.faults) > TOLD))]
        remedy = "; ".join(faults) or "lower the share that drops out, or the threshold"
        raise RoundFailed(
            f"secure aggregation failed: {reason}; nothing of their updates was revealed; {remedy}"
        )


def _usable(public: object, probe: X25519PrivateKey) -> bool:
    """Whether a key can be agreed on with what was sent as a public key."""
    try:
        agree(probe, public, b"probe")  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _block(data: bytes, size: int, place: int) -> bytes:
    return data[size * place : size * (place + 1)]
