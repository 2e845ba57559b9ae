"""Handing out access: from a finished federation to exactly what each adversary would have."""

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from glasshouse.access import (
    Access,
    AggregateAccess,
    BlindServerAccess,
    ModelAccess,
    PayloadAccess,
    Protocol,
    QueryAccess,
    ReportAccess,
    SeenPayload,
    SeenReports,
    SeenSum,
    SeenUpdates,
    ServerAccess,
    UpdateAccess,
)
from glasshouse.errors import CannotRun
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation
from glasshouse.federation.history import History, Observed
from glasshouse.federation.updates import Delivery
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import read_vector, write_vector

PROBE_ROUNDS = 1_000_000
"""Rounds that a crafting server runs are numbered from here, apart from those of the training."""


class _Answers:
    """What a model answers; images that one attack after the other asks about are looked at once."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._kept: deque[tuple[Tensor, int, Tensor]] = deque(maxlen=2)

    def __call__(self, x: Tensor) -> Tensor:
        for images, version, answers in self._kept:
            if images is x and version == x._version:
                return answers.clone()
        answers = predict(self._model, x).double().softmax(1)
        self._kept.append((x, x._version, answers))
        return answers.clone()


@dataclass(frozen=True, eq=False)
class Sent:
    """A model that a crafting server sent, as its network and its vector, shape (P,)."""

    network: nn.Module
    vector: Tensor

    def model(self) -> nn.Module:
        """The network as its clients received it."""
        received = deepcopy(self.network)
        write_vector(received, self.vector)
        return received


class Grantor:
    """Builds access objects for one finished federation; `sent` are the last crafting server's models."""

    def __init__(
        self, architecture: nn.Module, federation: Federation, history: History, seen: list[Observed]
    ) -> None:
        self._federation = federation
        self._history = history
        self._seen = seen
        self._protocol = Protocol(
            architecture,
            federation.layout,
            federation.recipe,
            federation.shape,
            federation.classes,
            federation.channel,
            federation.strategy,
        )
        self.model = deepcopy(architecture)
        write_vector(self.model, history.vector)
        self.model.eval()
        self._answers = _Answers(self.model)
        self.sent: list[Sent] = []

    def grant(self, kind: type[Access], *, changes_network: bool = False) -> Access:
        """A fresh access object of type `kind`: what one attack does to it, no other attack sees."""
        self.sent = []
        federation = self._federation
        if kind in (UpdateAccess, ServerAccess) and not federation.channel.shows_updates:
            raise CannotRun(f"no single update reaches the server: {federation.channel.described}")
        makers: dict[type[Access], Callable[[], Access]] = {
            QueryAccess: self._query,
            ModelAccess: lambda: ModelAccess(self.model),
            UpdateAccess: self._updates,
            AggregateAccess: self._sums,
            ReportAccess: self._reports,
            PayloadAccess: self._payloads,
            ServerAccess: lambda: self._server(ServerAccess, federation, changes_network),
            BlindServerAccess: lambda: self._server(BlindServerAccess, self.blind, changes_network),
        }
        return deepcopy(makers[kind]())

    def _query(self) -> QueryAccess:
        answers = self._answers
        return QueryAccess(
            lambda x: answers(x)
        )  # a function that encloses the model, not an object that has it

    def _updates(self) -> UpdateAccess:
        rounds = tuple(
            SeenUpdates(seen.number, seen.sent, seen.delivery.updates or ()) for seen in self._seen
        )
        return UpdateAccess(self._protocol, rounds)

    def _sums(self) -> AggregateAccess:
        sizes = self._federation.sizes
        rounds = tuple(
            SeenSum(
                seen.number,
                seen.sent,
                seen.delivery.mean,
                seen.delivery.clients,
                tuple(sizes[client] for client in seen.delivery.clients),
            )
            for seen in self._seen
        )
        return AggregateAccess(self._protocol, rounds)

    def _reports(self) -> ReportAccess:
        sizes = self._federation.sizes
        rounds = tuple(
            SeenReports(
                seen.number,
                seen.sent,
                seen.delivery.reports,
                {client: sizes[client] for client in seen.delivery.reports},
            )
            for seen in self._seen
            if seen.delivery.reports
        )
        if not rounds:
            raise CannotRun("clients tell the server nothing beside their updates")
        return ReportAccess(self._protocol, rounds)

    def _payloads(self) -> PayloadAccess:
        rounds = tuple(
            SeenPayload(seen.number, seen.sent, seen.payload) for seen in self._seen if seen.payload
        )
        if not rounds:
            raise CannotRun("the server sends nothing beside the model")
        return PayloadAccess(self._protocol, rounds)

    @cached_property
    def blind(self) -> Federation:
        """The same clients behind secure aggregation."""
        federation = self._federation
        return federation.through(CHANNELS.make("secure")) if federation.channel.shows_updates else federation

    def _server(
        self, kind: type[ServerAccess], federation: Federation, changes_network: bool
    ) -> ServerAccess:
        numbers = iter(range(PROBE_ROUNDS, 2 * PROBE_ROUNDS))
        sizes, sent = tuple(federation.sizes), self.sent
        protocol = dataclasses.replace(self._protocol, channel=federation.channel)

        def serving(running: Federation, protocol: Protocol, current: Tensor) -> ServerAccess:
            def exchange(
                vector: Tensor, clients: Sequence[int], apart: Mapping[int, Tensor] | None = None
            ) -> Delivery:
                sent.extend(Sent(protocol.architecture, each) for each in (vector, *(apart or {}).values()))
                return running.exchange(vector, list(clients), next(numbers), apart=apart).delivery

            return kind(protocol, current, sizes, exchange, rebuilt if changes_network else None)

        def rebuilt(network: nn.Module) -> ServerAccess:
            running = federation.training(network)
            changed = dataclasses.replace(protocol, architecture=network, layout=running.layout)
            return serving(running, changed, read_vector(network))

        return serving(federation, protocol, self._history.vector)
