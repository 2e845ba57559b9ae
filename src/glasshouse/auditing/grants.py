"""Handing out access: from a case to exactly what one adversary would have."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch
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
from glasshouse.auditing.case import Case
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.channels.channel import Channel, Ideal
from glasshouse.federation.history import Observed
from glasshouse.federation.live import LiveClients
from glasshouse.federation.updates import Delivery, Update, check_stored
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import write_vector

ALONE = "every round that was seen has one client, and the sum of one update is that update"
NO_REPORTS = "clients report nothing beside their updates"
NO_PAYLOAD = "the server sends nothing beside the model"
"""Why an adversary reads nothing, in words."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class SentModel:
    """A model that a crafting server sent, as its network and its vector, shape (P,)."""

    network: nn.Module
    vector: Tensor

    def model(self) -> nn.Module:
        """The network as its clients received it."""
        received = deepcopy(self.network)
        write_vector(received, self.vector)
        return received


@dataclass(frozen=True, eq=False)
class Grant:
    """An access object; what it comes with, in words, and what is worth a note; what a server then sends."""

    access: Access
    described: tuple[str, ...] = ()
    note: str | None = None
    sent: list[SentModel] = field(default_factory=list)


def grant(case: Case, adversary: type[Access], *, changes_network: bool = False) -> Grant:
    """A fresh access object of type `adversary`: what one attack does to it, no other attack sees.

    Updates that lie in a file are mapped anew: what is written into them is private to the access object.
    Raises `CannotRun` where the case does not hold what the adversary would read.
    """
    granted = _GRANTS[adversary](case, changes_network)
    return dataclasses.replace(granted, access=deepcopy(granted.access))


def _query(case: Case, _: bool) -> Grant:
    model, kept = _model(case), _ANSWERS.setdefault(case, {})

    @_as_outside
    def probabilities(x: Tensor) -> Tensor:
        pixels = x.detach().contiguous().numpy()
        key = pixels.shape, hashlib.blake2b(pixels.data, digest_size=16).digest()
        if key not in kept:
            kept[key] = predict(model, x).double().softmax(1)
        return kept[key].clone()

    return Grant(QueryAccess(probabilities))


def _as_outside(answer: Callable[P, R]) -> Callable[P, R]:
    """`answer`, the same whether or not whoever asks has switched torch's gradients off."""

    @wraps(answer)
    def answered(*arguments: P.args, **options: P.kwargs) -> R:
        with torch.inference_mode(False), torch.enable_grad():
            return answer(*arguments, **options)

    return answered


def _owned(case: Case, _: bool) -> Grant:
    return Grant(ModelAccess(_model(case)))


def _updates(case: Case, _: bool) -> Grant:
    check_shows_updates(case.protocol.channel)
    seen = tuple(
        SeenUpdates(observed.number, observed.sent, _single_updates(observed)) for observed in _rounds(case)
    )
    return Grant(UpdateAccess(case.protocol, seen))


def _sums(case: Case, _: bool) -> Grant:
    rounds = _rounds(case)
    seen = tuple(
        SeenSum(
            observed.number,
            observed.sent,
            observed.delivery.mean,
            observed.delivery.clients,
            tuple(case.sizes_in(observed)[client] for client in observed.delivery.clients),
            case.defence.divisor if case.defence is not None else None,
        )
        for observed in rounds
        if len(observed.delivery.clients) > 1
    )
    if not seen:
        raise CannotRun(ALONE)
    left_out = len(rounds) - len(seen)
    note = f"{left_out} of {len(rounds)} rounds had one client and are left out" if left_out else None
    channel = case.protocol.channel
    described = (Ideal() if channel.shows_updates else channel).described
    return Grant(AggregateAccess(case.protocol, seen), (described,), note)


def _reports(case: Case, _: bool) -> Grant:
    seen = tuple(
        SeenReports(
            observed.number,
            observed.sent,
            observed.delivery.reports,
            {client: case.sizes_in(observed)[client] for client in observed.delivery.reports},
        )
        for observed in _rounds(case)
        if observed.delivery.reports
    )
    if not seen:
        raise CannotRun(NO_REPORTS)
    return Grant(ReportAccess(case.protocol, seen))


def _payloads(case: Case, _: bool) -> Grant:
    seen = tuple(
        SeenPayload(observed.number, observed.sent, observed.payload)
        for observed in _rounds(case)
        if observed.payload
    )
    if not seen:
        raise CannotRun(NO_PAYLOAD)
    return Grant(PayloadAccess(case.protocol, seen))


def _crafting(case: Case, changes_network: bool) -> Grant:
    clients = _clients(case)
    check_shows_updates(clients.channel)
    return _server(case, ServerAccess, clients, changes_network)


def _blind_crafting(case: Case, changes_network: bool) -> Grant:
    clients = _clients(case).behind_a_sum()
    check_is_a_sum(len(clients.sizes))
    granted = _server(case, BlindServerAccess, clients, changes_network)
    return dataclasses.replace(granted, described=(*granted.described, clients.channel.described))


def _server(case: Case, kind: type[ServerAccess], clients: LiveClients, changes_network: bool) -> Grant:
    numbers = count()
    sent: list[SentModel] = []
    protocol = dataclasses.replace(case.protocol, channel=clients.channel)

    def serving(live: LiveClients, protocol: Protocol) -> ServerAccess:
        @_as_outside
        def exchange(
            vector: Tensor, clients: Sequence[int], apart: Mapping[int, Tensor] | None = None
        ) -> Delivery:
            models = (vector, *(apart or {}).values())
            if any(model.shape != live.current.shape for model in models):
                raise BadInput(f"a model of another shape than {tuple(live.current.shape)} was sent")
            sent.extend(SentModel(protocol.architecture, model.clone()) for model in models)
            return live.exchange(vector, list(clients), next(numbers), apart)

        return kind(protocol, live.current, live.sizes, exchange, rebuilt if changes_network else None)

    def rebuilt(network: nn.Module) -> ServerAccess:
        live = clients.training(network)
        return serving(live, dataclasses.replace(protocol, architecture=network, layout=live.layout))

    words = ("permission to change the network",) if changes_network else ()
    return Grant(serving(clients, protocol), words, sent=sent)


def _model(case: Case) -> nn.Module:
    if case.model is None:
        raise CannotRun("there is no final model")
    return case.model


def _rounds(case: Case) -> tuple[Observed, ...]:
    if not case.rounds:
        raise CannotRun("no round was seen")
    return case.rounds


def _single_updates(observed: Observed) -> tuple[Update, ...]:
    updates = observed.delivery.updates
    if updates is None:
        raise CannotRun(f"of round {observed.number + 1} the sum was kept, and no single update")
    check_stored(updates)
    return updates


def _clients(case: Case) -> LiveClients:
    if case.clients is None:
        raise CannotRun("there are no clients to exchange models with")
    return case.clients


def check_shows_updates(channel: Channel) -> None:
    """Raise `CannotRun` where only a sum of the updates reaches the server."""
    if not channel.shows_updates:
        raise CannotRun(f"no single update reaches the server: {channel.described}")


def check_is_a_sum(clients: int) -> None:
    """Raise `CannotRun` where the sum of the updates of so many clients is an update."""
    if clients < 2:
        raise CannotRun("there is one client, and the sum of one update is that update: no server is blind")


_ANSWERS: WeakKeyDictionary[Case, dict[tuple[tuple[int, ...], bytes], Tensor]] = WeakKeyDictionary()
"""What the model of a case answers, by shape and content of the images: attacks ask what others asked."""

_GRANTS: dict[type[Access], Callable[[Case, bool], Grant]] = {
    QueryAccess: _query,
    ModelAccess: _owned,
    UpdateAccess: _updates,
    AggregateAccess: _sums,
    ReportAccess: _reports,
    PayloadAccess: _payloads,
    ServerAccess: _crafting,
    BlindServerAccess: _blind_crafting,
}
