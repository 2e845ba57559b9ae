"""Secure aggregation as a channel: the server learns the sum of the clients' quantised updates."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import (
    Channel,
    RoundFailed,
    check_dropouts,
    check_updates,
    draw_dropouts,
    staying,
)
from glasshouse.federation.secagg.client import Client
from glasshouse.federation.secagg.graph import enough_neighbours, guarantee
from glasshouse.federation.secagg.messages import Refused, Terms, needed, wire_bytes
from glasshouse.federation.secagg.ring import Ring, Words, narrow_clients
from glasshouse.federation.secagg.server import Server
from glasshouse.federation.secagg.sharing import MOST_HOLDERS
from glasshouse.federation.updates import Delivery, Update

DESCRIBED_CLIENTS = 1000  # a description knows no round; the chances it gives are those of so many clients

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class MaskedDelivery(Delivery):
    """The sum, and how many entries of all clients together were clipped; single counts are masked too."""

    clipped: int = 0


@dataclass
class Traffic:
    """Counts the bytes that all clients of a round send and receive."""

    up: int = 0
    down: int = 0

    def sent(self, messages: Iterable[Answer]) -> Iterator[Answer]:
        """The messages of clients, counted as they come."""
        for message in messages:
            self.up += wire_bytes(message)
            yield message

    def received(self, message: Answer) -> Answer:
        """A message for one client, counted."""
        self.down += wire_bytes(message)
        return message


@dataclass(frozen=True, kw_only=True)
class Secure(Channel):
    """Pairwise and individual masks with secret shares, as in Bonawitz et al. (CCS 2017).

    Entries are cut to [-clip, clip] and rounded to one of 2**bits levels, after a client scaled its update
    by its samples over the most that any client has. A share `threshold` of the round's clients must stay
    until the end; `dropout_before` and `dropout_after` are the shares of them that drop out before they send
    their masked vector, and after it. With `neighbours`, an even number or "auto", each client shares masks
    and secrets with so many others alone (Bell et al., CCS 2020), and the threshold holds among them, too.
    """

    shows_updates = False
    least = 2

    clip: float = 8.0
    bits: int = 22
    threshold: float = 2 / 3
    neighbours: int | str | None = None
    dropout_before: float = 0.0
    dropout_after: float = 0.0

    def __post_init__(self) -> None:
        Ring(clip=self.clip, bits=self.bits, clients=2)
        if not 0.5 < self.threshold <= 1:
            raise BadInput(f"threshold = {self.threshold} is out of range; it must lie in (0.5, 1]")
        whole = isinstance(self.neighbours, int) and not isinstance(self.neighbours, bool)
        if not (
            self.neighbours in (None, "auto") or (whole and self.neighbours in range(2, MOST_HOLDERS, 2))
        ):
            raise BadInput(
                f"neighbours = {self.neighbours!r} is out of range; give an even number in "
                f"2..{MOST_HOLDERS - 1}, 'auto', or None for all clients"
            )
        check_dropouts(self.dropout_before, self.dropout_after)

    def fewest(self, clients: int) -> int:
        return staying(clients, self.dropout_before)

    @property
    def largest(self) -> float:
        return self.clip

    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        if len(updates) < 2:
            raise RoundFailed(
                f"secure aggregation needs at least 2 clients in a round, {len(updates)} took part; "
                "let more of them"
            )
        samples, shape, dtype = check_updates(updates)
        before, after = self._dropouts(list(samples), seed)
        neighbours = self.neighbours_among(len(samples))
        terms = self.terms(samples, shape[0], neighbours)
        server = Server(terms, neighbours, seed)
        clients = {name: Client(name, count, terms) for name, count in samples.items()}
        wire = Traffic()

        server.collect(wire.sent(client.advertise() for client in clients.values()))
        shared = _willing(
            server, server.keys, lambda name: clients[name].share(wire.received(server.directory(name)))
        )
        server.route(wire.sent(shared))
        present = server.sharing.keys() - before
        sending = (update for update in updates if update.client in present)
        masked_vectors = _willing(
            server,
            sending,
            lambda update: clients[update.client].mask(
                wire.received(server.inbox(update.client)), update.delta
            ),
        )
        for masked in wire.sent(masked_vectors):
            server.add(masked)
        server.close()
        staying = (name for name in server.masked if name not in after)
        answers = _willing(
            server, staying, lambda name: clients[name].reveal(wire.received(server.request(name)))
        )
        delivery = self.opened(server.unmask(wire.sent(answers)), server, samples, dtype)
        for fault in server.faults:
            warnings.warn(f"secure aggregation went on without a message: {fault}", stacklevel=2)
        return replace(delivery, protocol_up=wire.up // len(samples), protocol_down=wire.down // len(samples))

    def neighbours_among(self, clients: int) -> int | None:
        """How many neighbours each of `clients` has; None: all the others."""
        neighbours = self.neighbours
        if neighbours == "auto":
            dropping = self.dropout_before + self.dropout_after
            neighbours = enough_neighbours(clients, self.threshold, dropping)
        assert not isinstance(neighbours, str)
        return None if neighbours is None or neighbours >= clients - 1 else neighbours

    @property
    def described(self) -> str:
        return (
            f"secure aggregation: entries clipped at {self.clip:g} and rounded to 2^{self.bits} levels, "
            f"summed under masks modulo 2^32 (2^64 above {narrow_clients(self.bits):,} clients), shares of "
            f"{self.threshold:.0%} of the clients needed, {self.dropout_before:.0%} of them dropping out "
            f"before they send and {self.dropout_after:.0%} after{self._described_neighbours()}"
        )

    def _described_neighbours(self) -> str:
        if self.neighbours is None:
            return ""
        clients = DESCRIBED_CLIENTS
        if isinstance(self.neighbours, int):
            clients = max(clients, self.neighbours + 2)
        fewest = self.neighbours_among(clients)
        if fewest is None:
            return "; masks and shares among all clients, as so many drop out"
        dropping = self.dropout_before + self.dropout_after
        chosen = " (as many as their number calls for)" if self.neighbours == "auto" else ""
        words = guarantee(clients, fewest, self.threshold, dropping=dropping)
        return f"; masks and shares among neighbours alone{chosen}: {words}"

    def terms(self, samples: Mapping[int, int], length: int, neighbours: int | None) -> Terms:
        """What the server announces to clients with `samples`, whose vectors have `length` entries."""
        holders = len(samples) if neighbours is None else neighbours + 1
        if holders > MOST_HOLDERS:
            raise BadInput(
                f"{holders} clients cannot share one secret, {MOST_HOLDERS} can; give neighbours='auto'"
            )
        return Terms(
            ring=Ring(clip=self.clip, bits=self.bits, clients=len(samples)),
            length=length,
            holders=holders,
            threshold=needed(holders, self.threshold),
            fewest=needed(len(samples), self.threshold),
            largest=max(samples.values()),
        )

    def opened(
        self, total: Words, server: Server, samples: Mapping[int, int], dtype: torch.dtype
    ) -> MaskedDelivery:
        """The weighted mean of the opened sum, with a warning of what was clipped."""
        survivors = tuple(name for name in samples if name in server.masked)
        weight = sum(samples[name] for name in survivors)
        if not weight:
            raise RoundFailed("secure aggregation failed: the clients that are left have no samples")
        precision = torch.empty(0, dtype=dtype).numpy().dtype
        mean = torch.from_numpy(server.terms.ring.read(total, server.terms.largest / weight, precision))
        clipped = int(total[-1])
        if clipped:
            # Rounded down to a power of ten: Python shows a text only once, but would show every exact count.
            least = 10.0 ** math.floor(math.log10(clipped / (len(survivors) * len(mean))))
            warnings.warn(
                f"secure aggregation clipped {100 * least:g}% or more of the entries at {self.clip:g}; "
                "a larger clip keeps them",
                stacklevel=3,
            )
        return MaskedDelivery(mean, weight, survivors, clipped=clipped)

    def _dropouts(self, clients: Sequence[int], seed: int) -> tuple[set[int], set[int]]:
        """Who drops out before sending its masked vector, and who after."""
        return draw_dropouts(clients, self.dropout_before, self.dropout_after, seed)


def _willing(server: Server, asked: Iterable[Asked], ask: Callable[[Asked], Answer]) -> Iterator[Answer]:
    """The answers of all clients that do not refuse; one that does is as good as gone."""
    for client in asked:
        try:
            answer = ask(client)
        except Refused as refusal:
            server.faults.append(str(refusal))
        else:
            yield answer
