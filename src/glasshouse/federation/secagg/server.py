"""The server's side of secure aggregation: it passes on sealed shares, adds masked vectors, opens the sum."""

from collections.abc import Iterable, Sequence

import numpy as np

from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.secagg.keys import agree, derive, private_key, public_bytes
from glasshouse.federation.secagg.masks import add_mask
from glasshouse.federation.secagg.messages import Keys, Masked, Request, Revealed, Sealed, Terms, holders
from glasshouse.federation.secagg.ring import Words
from glasshouse.federation.secagg.sharing import combine


class Server:
    """One round: it holds public keys, the sum of masked vectors, and shares while it opens the sum."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.keys: dict[int, Keys] = {}
        self.sharing: tuple[int, ...] = ()
        self.masked: list[int] = []
        self.total: Words | None = None

    def collect(self, keys: Iterable[Keys]) -> tuple[Keys, ...]:
        """Round 0: everyone's public keys, to be sent to all."""
        self.keys = {key.client: key for key in keys}
        self._enough(len(self.keys), "sent public keys")
        return tuple(self.keys.values())

    def route(self, outboxes: Iterable[Sequence[Sealed]]) -> dict[int, list[Sealed]]:
        """Round 1: the sealed shares by recipient, among those who sent any."""
        sealed = [message for outbox in outboxes for message in outbox]
        senders = {message.sender for message in sealed}
        self.sharing = tuple(client for client in self.keys if client in senders)
        self._enough(len(self.sharing), "shared their secrets")
        inboxes: dict[int, list[Sealed]] = {client: [] for client in self.sharing}
        for message in sealed:
            if message.recipient in inboxes:
                inboxes[message.recipient].append(message)
        return inboxes

    def add(self, masked: Masked) -> None:
        """Round 2: add one masked vector to the sum."""
        self.masked.append(masked.client)
        if self.total is None:
            self.total = masked.words
        else:
            np.add(self.total, masked.words, out=self.total)

    def request(self) -> Request:
        """Round 3: what to ask all clients in the sum for."""
        self._enough(len(self.masked), "sent a masked vector")
        dropped = tuple(client for client in self.sharing if client not in self.masked)
        return Request(tuple(sorted(self.masked)), dropped)

    def unmask(self, answers: Sequence[Revealed]) -> Words:
        """Round 3: the sum of the quantised updates, shape (P + 1,)."""
        self._enough(len(answers), "sent shares for unmasking")
        helping = answers[: self.terms.threshold]
        numbers = holders(self.keys)
        assert self.total is not None
        for survivor in self.masked:
            seed = combine({numbers[answer.client]: answer.seeds[survivor] for answer in helping})
            add_mask(self.total, derive(seed, b"own mask"), subtract=True)
        for client in self.request().dropped:
            secret = combine({numbers[answer.client]: answer.keys[client] for answer in helping})
            private = private_key(secret)
            if public_bytes(private) != self.keys[client].masking:
                raise RoundFailed(
                    f"secure aggregation failed: the shares of client {client}'s key do not fit it"
                )
            for survivor in self.masked:
                key = agree(private, self.keys[survivor].masking, b"mask")
                add_mask(self.total, key, subtract=survivor < client)
        return self.total

    def _enough(self, count: int, what: str) -> None:
        if count < self.terms.threshold:
            raise RoundFailed(
                f"secure aggregation failed: {count} of {self.terms.ring.clients} clients {what}, "
                f"{self.terms.threshold} are needed; nothing of their updates was revealed; "
                "lower the share that drops out, or the threshold"
            )
