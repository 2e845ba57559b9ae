"""The server's side of secure aggregation in a Flower app: a grid through which it sees sums alone."""

import secrets
from collections.abc import Iterable
from typing import Any

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.secagg.server import Server
from glasshouse.integrations.flower.framework import (
    Grid,
    Message,
)
from glasshouse.integrations.flower.labels import (
    ADVERTISE,
    MASK,
    REVEAL,
    SHARE,
)
from glasshouse.integrations.flower.records import (
    logger,
    refusal,
    trains,
)
from glasshouse.integrations.flower.replies import WEIGHT
from glasshouse.integrations.flower.talking import Talk, read_keys, read_masked, read_revealed, read_shared
from glasshouse.integrations.flower.wire import (
    inbox_to,
    keys_to,
    request_to,
    terms_to,
)


class SecureGrid(Grid):
    """A grid whose messages for training end in a sum: hand it to any strategy that averages.

    Its clients have the mod `secure_mod`. Every reply to a message for training carries the same mean update,
    added to the model that was sent, with the metrics that its client sends in the clear; whatever a strategy
    averages of that is the mean. One that compares clients, such as Krum or a median, compares copies.
    Options are those of the channel `secure`; `timeout` in `start` is that of each of the five stages. The
    metric `weighted_by` is the one by which `secure_mod` and the strategy weigh clients.

    A client that does not answer in a stage has dropped out. Where too few are left no sum is opened, all
    replies are errors, and strategies of Flower keep the model that they have.
    """

    opens_sums = True

    def __init__(
        self,
        grid: Grid,
        *,
        clip: float = 8.0,
        bits: int = 22,
        threshold: float = 2 / 3,
        neighbours: int | str | None = None,
        weighted_by: str = WEIGHT,
        arrays: str | None = None,
    ) -> None:
        self._grid = grid
        self._channel = Secure(clip=clip, bits=bits, threshold=threshold, neighbours=neighbours)
        self._weighted_by, self._arrays = weighted_by, arrays

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """The replies; to messages for training they carry the mean of all."""
        messages = list(messages)
        training = [message for message in messages if trains(message)]
        others = [message for message in messages if not trains(message)]
        replies = list(self._grid.send_and_receive(others, timeout=timeout)) if others else []
        return replies + (self._summed(training, timeout) if training else [])

    def push_messages(self, messages: Iterable[Message]) -> Any:
        """As ever, but for training, which is a protocol of several messages."""
        messages = list(messages)
        if any(map(trains, messages)):
            raise BadInput("a secure sum takes several messages; train through send_and_receive")
        return self._grid.push_messages(messages)

    def _summed(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """One round of the protocol, and what each client's reply becomes."""
        talk = Talk(self._grid, messages, timeout, self._weighted_by)
        try:
            return self._opened(talk)
        except RoundFailed as failure:
            reason = "; ".join(filter(None, [talk.with_nodes(str(failure)), talk.told()]))
            logger.warning("%s", reason)
            return [refusal(message, reason) for message in messages]

    def _opened(self, talk: Talk) -> list[Message]:
        trained = talk.trained()
        if len(trained) < 2:
            raise RoundFailed(
                f"secure aggregation needs at least 2 clients that trained, {len(trained)} did; "
                "let more of them take part"
            )
        samples = {name: offer.samples for name, offer in trained.items()}
        if not any(samples.values()):
            raise RoundFailed("secure aggregation failed: the clients have no samples")
        sent = {name: talk.sent(name, self._arrays) for name in trained}
        _, first = next(iter(sent.values()))
        extra = next(iter(trained.values())).extra
        neighbours = self._channel.neighbours_among(len(samples))
        terms = self._channel.terms(samples, first.layout.size + extra, neighbours)
        server = Server(terms, neighbours, secrets.randbits(32))

        announced = {name: {"name": name, **terms_to(terms)} for name in trained}
        server.collect(talk.ask(ADVERTISE, announced, read_keys))
        directories = {name: keys_to(server.directory(name)) for name in server.keys}
        server.route(talk.ask(SHARE, directories, read_shared))
        inboxes = {name: inbox_to(server.inbox(name)) for name in server.sharing}
        for masked in talk.ask(MASK, inboxes, read_masked):
            server.add(masked)
        server.close()
        requests = {name: request_to(server.request(name)) for name in server.masked}
        total = server.unmask(talk.ask(REVEAL, requests, read_revealed))

        delivery = self._channel.opened(total, server, samples, first.vector.dtype)
        talk.faults += server.faults
        logger.info(
            "opened the sum of %d of %d clients' updates%s",
            len(delivery.clients),
            len(talk.nodes),
            f"; {talk.told()}" if talk.faults else "",
        )
        return talk.replies(delivery, sent, trained)

    def set_run(self, run: Any) -> None:
        """As the grid does."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the grid."""
        return self._grid.run

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        """As the grid does."""
        return self._grid.create_message(*arguments, **options)

    def get_node_ids(self) -> Any:
        """As the grid does."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Any:
        """As the grid does."""
        return self._grid.get_nodes()

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        """As the grid does."""
        return self._grid.pull_messages(message_ids)
