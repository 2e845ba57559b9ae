"""The server's side of secure aggregation in a Flower app: a grid through which it sees sums alone."""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from glasshouse.errors import BadInput, named
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.channels.secure import MaskedDelivery, Secure
from glasshouse.federation.secagg.messages import Keys, Masked, Revealed, Shared
from glasshouse.federation.secagg.server import Server
from glasshouse.integrations.flower.framework import (
    ConfigRecord,
    Grid,
    Message,
    RecordDict,
)
from glasshouse.integrations.flower.labels import (
    ADVERTISE,
    MASK,
    PROTOCOL,
    REVEAL,
    SHARE,
    SUMMED,
    TRAIN,
    WORDS,
)
from glasshouse.integrations.flower.records import (
    State,
    logger,
    only_record,
    record_of,
    refusal,
    trains,
)
from glasshouse.integrations.flower.wire import (
    Fields,
    inbox_to,
    keys_from,
    keys_to,
    request_to,
    revealed_from,
    shared_from,
    terms_to,
)

Answer = TypeVar("Answer")

OPENED = "opened"
"""The stage of a reply that carries the mean of all: no single update is in it."""


class SecureGrid(Grid):
    """A grid whose messages for training end in a sum: hand it to any strategy that averages.

    Its clients have the mod `secure_mod`. Every reply to a message for training carries the same mean update,
    added to the model that was sent, with the metrics that its client sends in the clear; whatever a strategy
    averages of that is the mean. One that compares clients, such as Krum or a median, compares copies.
    Options are those of the channel `secure`; `timeout` in `start` is that of each of the five stages.

    A client that does not answer in a stage has dropped out. Where too few are left no sum is opened, all
    replies are errors, and strategies of Flower keep the model that they have.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        clip: float = 8.0,
        bits: int = 22,
        threshold: float = 2 / 3,
        neighbours: int | str | None = None,
        arrays: str | None = None,
    ) -> None:
        self._grid = grid
        self._channel = Secure(clip=clip, bits=bits, threshold=threshold, neighbours=neighbours)
        self._arrays = arrays

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
        talk = Talk(self._grid, messages, timeout)
        try:
            return self._opened(talk)
        except RoundFailed as failure:
            reason = talk.with_nodes(str(failure))
            logger.warning("%s", reason)
            return [refusal(message, reason) for message in messages]

    def _opened(self, talk: "Talk") -> list[Message]:
        trained = talk.trained()
        if len(trained) < 2:
            raise RoundFailed(
                f"secure aggregation needs at least 2 clients that trained, {len(trained)} did; "
                f"let more of them take part; {talk.told()}"
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
        server.collect(talk.ask(ADVERTISE, announced, _keys))
        directories = {name: keys_to(server.directory(name)) for name in server.keys}
        server.route(talk.ask(SHARE, directories, _shared))
        inboxes = {name: inbox_to(server.inbox(name)) for name in server.sharing}
        for masked in talk.ask(MASK, inboxes, _masked):
            server.add(masked)
        server.close()
        requests = {name: request_to(server.request(name)) for name in server.masked}
        total = server.unmask(talk.ask(REVEAL, requests, _revealed))

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


@dataclass(frozen=True, eq=False)
class Offer:
    """What a client says after it trained: its samples, how many more entries it sums, and clear records."""

    samples: int
    extra: int
    records: Mapping[str, Any]


@dataclass(eq=False)
class Talk:
    """Asks the clients of one round, called 0, 1, ... by the order of their `messages`, stage by stage."""

    grid: Grid
    messages: list[Message]
    timeout: float | None
    session: str = field(default_factory=lambda: secrets.token_hex(16))
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = [message.metadata.dst_node_id for message in self.messages]

    def trained(self) -> dict[int, Offer]:
        """Have all clients train; those that did, with what they say, by name."""
        everybody: dict[int, Fields] = {name: {} for name in range(len(self.nodes))}
        offers = dict(self._asked(TRAIN, everybody, _offer))
        lengths = Counter(offer.extra for offer in offers.values())
        for name, offer in list(offers.items()):
            if offer.extra != lengths.most_common(1)[0][0]:
                self.faults.append(f"client {name} has {offer.extra} entries more to sum, others have not")
                del offers[name]
        return offers

    def ask(
        self, stage: str, fields: Mapping[int, Fields], read: Callable[[int, RecordDict], Answer]
    ) -> Iterator[Answer]:
        """What the clients answer to their `fields`, as far as it can be read."""
        return (answer for _, answer in self._asked(stage, fields, read))

    def _asked(
        self, stage: str, fields: Mapping[int, Fields], read: Callable[[int, RecordDict], Answer]
    ) -> Iterator[tuple[int, Answer]]:
        names = {self.nodes[name]: name for name in fields}
        answered: set[int] = set()
        messages = [self._message(stage, name, said) for name, said in fields.items()]
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            name = names.get(reply.metadata.src_node_id)
            if name is None or name in answered:
                continue
            answered.add(name)
            if reply.has_error():
                reason = (
                    str(reply.error.reason).strip().rpartition("\n")[2]
                )  # the end of a traceback, if it is one
                self.faults.append(
                    reason if reason.startswith(f"client {name} ") else f"client {name}: {reason}"
                )
                continue
            try:
                said = reply.content.config_records[PROTOCOL]
                if (said["stage"], said["session"]) != (stage, self.session):
                    raise ValueError(f"an answer to the stage {said['stage']!r}")
                answer = read(name, reply.content)
            except (KeyError, TypeError, ValueError) as error:
                self.faults.append(f"client {name} sent what cannot be read in {stage} ({named(error)})")
            else:
                yield name, answer
        silent = [name for name in fields if name not in answered]
        self.faults += [f"client {name} did not answer in {stage}" for name in silent]

    def _message(self, stage: str, name: int, fields: Fields) -> Message:
        message = self.messages[name]
        said = ConfigRecord({"stage": stage, "session": self.session, **fields})
        content = {PROTOCOL: said} | (dict(message.content) if stage == TRAIN else {})
        metadata = message.metadata
        return Message(
            RecordDict(content),
            dst_node_id=metadata.dst_node_id,
            message_type=metadata.message_type,
            ttl=metadata.ttl,
            group_id=metadata.group_id,
        )

    def sent(self, name: int, arrays: str | None) -> tuple[str, State]:
        """The model that a client was sent, with the name of its record."""
        key, record = only_record(self.messages[name].content, arrays)
        return key, State.of(record)

    def replies(
        self, delivery: MaskedDelivery, sent: Mapping[int, tuple[str, State]], offers: Mapping[int, Offer]
    ) -> list[Message]:
        """For every client that is in the sum a reply with the mean; for the others, one that says why."""
        replies = []
        for name, message in enumerate(self.messages):
            if name not in delivery.clients:
                replies.append(refusal(message, self.with_nodes(self._fault_of(name))))
                continue
            content = _with_mean(*sent[name], delivery.mean)
            opened = ConfigRecord(
                {"stage": OPENED, "clients": len(delivery.clients), "clipped": delivery.clipped}
            )
            records = {**content, **offers[name].records, PROTOCOL: opened}
            replies.append(Message(RecordDict(records), reply_to=message))
        return replies

    def _fault_of(self, name: int) -> str:
        own = [fault for fault in self.faults if re.match(rf"client {name}\b", fault)]
        return f"its update is not in the sum: {'; '.join(own) or 'it dropped out'}"

    def told(self) -> str:
        """All that went wrong, with the numbers of nodes."""
        return self.with_nodes("; ".join(self.faults))

    def with_nodes(self, text: str) -> str:
        """The text with the nodes' numbers for those of clients."""
        return re.sub(r"\bclient (\d+)\b", lambda found: f"node {self.nodes[int(found[1])]}", text)


def _with_mean(name: str, sent: State, mean: Tensor) -> dict[str, Any]:
    size = sent.layout.size
    records: dict[str, Any] = {name: sent.with_vector(sent.vector + mean[:size])}
    if len(mean) > size:
        records[SUMMED] = record_of({"summed": mean[size:]})
    return records


def _offer(name: int, content: RecordDict) -> Offer:
    said = content.config_records[PROTOCOL]
    samples, extra = int(said["samples"]), int(said["extra"])
    if samples < 0 or extra < 0:
        raise ValueError(f"{samples} samples and {extra} entries")
    clear = {key: record for key, record in content.items() if key != PROTOCOL}
    return Offer(samples, extra, clear)


def _keys(name: int, content: RecordDict) -> Keys:
    (keys,) = keys_from(content.config_records[PROTOCOL])
    return Keys(name, keys.sealing, keys.masking)


def _shared(name: int, content: RecordDict) -> Shared:
    return shared_from(name, content.config_records[PROTOCOL])


def _masked(name: int, content: RecordDict) -> Masked:
    words: np.ndarray = content.array_records[WORDS]["words"].numpy()
    return Masked(name, words)


def _revealed(name: int, content: RecordDict) -> Revealed:
    return revealed_from(name, content.config_records[PROTOCOL])
