"""Clients that still take part: rounds for a server that chooses what it sends."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.channels.channel import Channel, RoundFailed
from glasshouse.federation.conditions import PROBE_ROUNDS
from glasshouse.federation.federation import Federation
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import Layout, read_vector


@dataclass(frozen=True, eq=False)
class LiveClients:
    """Clients of a federation, numbered from 0 whatever their numbers there; null means all of them.

    `current` is the global model, shape (P,). Rounds count from `first_round`: what is drawn in a round
    follows from its number.
    """

    federation: Federation
    current: Tensor
    clients: Sequence[int] | None = None
    first_round: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Each client's sample count."""
        return tuple(self.federation.sizes[number] for number in self._numbers)

    @property
    def channel(self) -> Channel:
        """How their updates travel."""
        return self.federation.channel

    @property
    def layout(self) -> Layout:
        """The layout of the network that they train."""
        return self.federation.layout

    def behind_a_sum(self) -> "LiveClients":
        """The same clients behind secure aggregation, if their channel shows more than a sum."""
        if not self.channel.shows_updates:
            return self
        return dataclasses.replace(self, federation=self.federation.through(CHANNELS.make("secure")))

    def training(self, network: nn.Module) -> "LiveClients":
        """The same clients, training another network, from its weights."""
        return dataclasses.replace(
            self, federation=self.federation.training(network), current=read_vector(network)
        )

    def exchange(
        self, vector: Tensor, clients: Sequence[int], number: int, apart: Mapping[int, Tensor] | None = None
    ) -> Delivery:
        """Round `number`, counted from 0: send `vector`, to clients in `apart` what stands there instead.

        Raises `RoundFailed` where the channel cannot deliver, or every client refuses the model.
        """
        unknown = [client for client in (*clients, *(apart or {})) if not 0 <= client < len(self._numbers)]
        if unknown:
            raise BadInput(
                f"no client {unknown[0]} to exchange with; they are numbered 0 to {len(self._numbers) - 1}"
            )
        self._check_is_a_sum(len(clients))
        asked = [self._numbers[client] for client in clients]
        crafted = {self._numbers[client]: sent for client, sent in (apart or {}).items()}
        number += PROBE_ROUNDS + self.first_round
        delivery = self.federation.exchange(vector, asked, number, apart=crafted).delivery
        self._check_is_a_sum(len(delivery.clients))
        divisor = self.federation.defences.divisor
        if divisor is not None:  # a public number: whoever reads the sum takes the mean of those in it
            mean = delivery.mean * (divisor / len(delivery.clients))
            delivery = dataclasses.replace(delivery, mean=mean)
        return self._renumbered(delivery)

    def _check_is_a_sum(self, clients: int) -> None:
        """Refuse a sum of one update, whoever asked for it and however many clients refused."""
        if clients == 1 and not self.channel.shows_updates:
            raise RoundFailed("the sum of one client's update is that update: no blind server receives it")

    @property
    def _numbers(self) -> Sequence[int]:
        """The clients' numbers in the federation."""
        return range(len(self.federation.sizes)) if self.clients is None else self.clients

    def _renumbered(self, delivery: Delivery) -> Delivery:
        """The delivery with the clients numbered from 0."""
        client = {number: place for place, number in enumerate(self._numbers)}
        updates = delivery.updates
        if updates is not None:
            updates = tuple(dataclasses.replace(update, client=client[update.client]) for update in updates)
        return dataclasses.replace(
            delivery,
            clients=tuple(client[number] for number in delivery.clients),
            updates=updates,
            reports={client[number]: report for number, report in delivery.reports.items()},
        )
