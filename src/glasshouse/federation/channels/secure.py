"""Secure aggregation as a channel: the server learns the sum of the clients' quantised updates."""

import math
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import Channel, RoundFailed, check_dropouts, draw_dropouts
from glasshouse.federation.secagg.client import Client
from glasshouse.federation.secagg.messages import Terms, needed
from glasshouse.federation.secagg.ring import Ring, narrow_clients
from glasshouse.federation.secagg.server import Server
from glasshouse.federation.updates import Delivery, Update


@dataclass(frozen=True, eq=False)
class MaskedDelivery(Delivery):
    """The sum, and how many entries of all clients together were clipped; single counts are masked too."""

    clipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Secure(Channel):
    """Pairwise and individual masks with secret shares, as in Bonawitz et al. (CCS 2017).

    Entries are cut to [-clip, clip] and rounded to one of 2**bits levels, after a client scaled its update
    by its samples over the most that any client has. A share `threshold` of the round's clients must stay
    until the end; `dropout_before` and `dropout_after` are the shares of them that drop out before they send
    their masked vector, and after it.
    """

    shows_updates = False

    clip: float = 8.0
    bits: int = 22
    threshold: float = 2 / 3
    dropout_before: float = 0.0
    dropout_after: float = 0.0

    def __post_init__(self) -> None:
        Ring(clip=self.clip, bits=self.bits, clients=2)
        if not 0.5 < self.threshold <= 1:
            raise BadInput(f"threshold = {self.threshold} is out of range; it must lie in (0.5, 1]")
        check_dropouts(self.dropout_before, self.dropout_after)

    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        if len(updates) < 2:
            raise RoundFailed(
                f"secure aggregation needs at least 2 clients in a round, {len(updates)} took part; "
                "let more of them"
            )
        before, after = self._dropouts([update.client for update in updates], seed)
        ring = Ring(clip=self.clip, bits=self.bits, clients=len(updates))
        largest = max(update.samples for update in updates)
        terms = Terms(ring, needed(len(updates), self.threshold), largest)
        server = Server(terms)
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the ciphers work outside the interpreter's lock
            clients = list(pool.map(lambda update: Client(update, terms), updates))
            keys = server.collect(client.advertise() for client in clients)
            inboxes = server.route(pool.map(lambda client: client.share(keys), clients))
            present = [client for client in clients if client.name not in before]
            for masked in pool.map(lambda client: client.mask(inboxes[client.name]), present):
                server.add(masked)
        request = server.request()
        answers = [client.reveal(request) for client in present if client.name not in after]
        total = server.unmask(answers)

        survivors = [update for update in updates if update.client not in before]
        samples = sum(update.samples for update in survivors)
        mean = torch.from_numpy(ring.read(total, largest / samples, updates[0].delta.numpy().dtype))
        clipped = int(total[-1])
        if clipped:
            # Rounded down to a power of ten: Python shows a text only once, but would show every exact count.
            least = 10.0 ** math.floor(math.log10(clipped / (len(survivors) * len(mean))))
            warnings.warn(
                f"secure aggregation clipped {100 * least:g}% or more of the entries at {self.clip:g}; "
                "a larger clip keeps them",
                stacklevel=2,
            )
        return MaskedDelivery(mean, samples, tuple(update.client for update in survivors), clipped=clipped)

    @property
    def described(self) -> str:
        return (
            f"secure aggregation: entries clipped at {self.clip:g} and rounded to 2^{self.bits} levels, "
            f"summed under masks modulo 2^32 (2^64 above {narrow_clients(self.bits):,} clients), shares of "
            f"{self.threshold:.0%} of the clients needed, {self.dropout_before:.0%} of them dropping out "
            f"before they send and {self.dropout_after:.0%} after"
        )

    def _dropouts(self, clients: Sequence[int], seed: int) -> tuple[set[int], set[int]]:
        """Who drops out before sending its masked vector, and who after."""
        return draw_dropouts(clients, self.dropout_before, self.dropout_after, seed)
