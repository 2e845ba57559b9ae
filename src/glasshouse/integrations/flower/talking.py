"""Asks the clients of a secure sum, stage by stage, and reads what they answer."""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from glasshouse.errors import BadInput, named, one_line, quoted
from glasshouse.federation.channels.secure import MaskedDelivery
from glasshouse.federation.secagg.messages import Keys, Masked, Revealed, Shared
from glasshouse.integrations.flower.framework import ConfigRecord, Grid, Message, MetricRecord, RecordDict
from glasshouse.integrations.flower.labels import PROTOCOL, REPORT, SUMMED, TRAIN, WORDS
from glasshouse.integrations.flower.records import (
    LONGEST_REASON,
    OWN,
    State,
    only_record,
    record_of,
    refusal,
    tensors_of,
)
from glasshouse.integrations.flower.wire import Fields, keys_from, revealed_from, shared_from

Answer = TypeVar("Answer")

OPENED = "opened"
"""The stage of a reply that carries the mean of all: no single update is in it."""


@dataclass(frozen=True, eq=False)
class Offer:
    """What a client says after it trained: its samples, how many more entries it sums, and what is clear."""

    samples: int
    extra: int
    metrics: Mapping[str, MetricRecord]
    report: Mapping[str, Tensor]

    @property
    def form(self) -> tuple[int, frozenset[tuple[str, torch.Size, torch.dtype]]]:
        """What all clients of one strategy have in common."""
        report = frozenset((name, tensor.shape, tensor.dtype) for name, tensor in self.report.items())
        return self.extra, report


@dataclass(eq=False)
class Talk:
    """Asks the clients of one round, called 0, 1, ... by the order of their `messages`, stage by stage.

    The metric `weighted_by` of each is its number of samples.
    """

    grid: Grid
    messages: list[Message]
    timeout: float | None
    weighted_by: str
    session: str = field(default_factory=lambda: secrets.token_hex(16))
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = [message.metadata.dst_node_id for message in self.messages]

    def trained(self) -> dict[int, Offer]:
        """Have all clients train; those that did, with what they say, by name."""
        everybody: dict[int, Fields] = {name: {} for name in range(len(self.nodes))}
        offers = dict(self._asked(TRAIN, everybody, self._offer))
        forms = Counter(offer.form for offer in offers.values())
        for name, offer in list(offers.items()):
            if offer.form != forms.most_common(1)[0][0]:
                reported = quoted(sorted(offer.report)) if offer.report else "nothing"
                self.faults.append(
                    f"client {name} has {offer.extra} entries more to sum and reports {reported}, unlike most"
                )
                del offers[name]
        return offers

    def _offer(self, name: int, content: RecordDict) -> Offer:
        said = content.config_records[PROTOCOL]
        samples, extra = said["samples"], said["extra"]
        if not (isinstance(samples, int) and isinstance(extra, int) and samples >= 0 and extra >= 0):
            raise ValueError(f"{samples} samples and {extra} entries")
        return Offer(samples, extra, self._metrics(name, content, samples), _report(content))

    def _metrics(self, name: int, content: RecordDict, samples: int) -> dict[str, MetricRecord]:
        """The metrics of an offer, in which a strategy finds the samples that are summed, and no others."""
        key, records = self.weighted_by, content.metric_records
        weights = [metrics[key] for metrics in records.values() if key in metrics]
        if not weights or any(weight != samples for weight in weights):
            said = quoted(weights[0]) if weights else "missing"
            raise BadInput(
                f"its metric {key!r} is {said}, and {samples} samples are to be summed; give SecureGrid and "
                "secure_mod the same `weighted_by`"
            )
        for record in records:
            if record in self.messages[name].content.array_records or record.startswith(OWN):
                raise BadInput(f"its metrics are called {quoted(record)}, as arrays are; rename them")
        return {
            record: MetricRecord({**metrics, key: samples}) if key in metrics else metrics
            for record, metrics in records.items()
        }

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
                last = str(reply.error.reason).strip().rpartition("\n")[2]  # of a traceback, if it is one
                reason = one_line(last, LONGEST_REASON)
                known = reason.startswith(f"client {name} ")
                self.faults.append(reason if known else f"client {name}: {reason}")
                continue
            try:
                said = reply.content.config_records[PROTOCOL]
                if (said["stage"], said["session"]) != (stage, self.session):
                    raise ValueError(f"an answer to the stage {said['stage']!r}")
                answer = read(name, reply.content)
            except BadInput as fault:
                self.faults.append(f"client {name}: {fault}")
            except Exception as error:  # whatever a client sends, the others go on
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
        """For every client that is in the sum a reply with the mean; for the others, one that says why.

        The mean comes last, so that nothing that a client sent stands in its place.
        """
        replies = []
        for name, message in enumerate(self.messages):
            if name not in delivery.clients:
                replies.append(refusal(message, self.with_nodes(self._fault_of(name))))
                continue
            opened = ConfigRecord(
                {"stage": OPENED, "clients": len(delivery.clients), "clipped": delivery.clipped}
            )
            records: dict[str, Any] = dict(offers[name].metrics)
            if report := offers[name].report:
                records[REPORT] = record_of(report)
            records |= {**_with_mean(*sent[name], delivery.mean), PROTOCOL: opened}
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


def _report(content: RecordDict) -> dict[str, Tensor]:
    """The arrays of a report, if there is one; all other arrays of an offer stay unread."""
    if REPORT not in content:
        return {}
    report = tensors_of(content.array_records[REPORT])
    for name, tensor in report.items():
        if not torch.isfinite(tensor).all():
            raise BadInput(f"its report {quoted(name)} holds NaN or infinite numbers")
    return report


def read_keys(name: int, content: RecordDict) -> Keys:
    """The public keys in an answer."""
    (keys,) = keys_from(content.config_records[PROTOCOL])
    return Keys(name, keys.sealing, keys.masking)


def read_shared(name: int, content: RecordDict) -> Shared:
    """The sealed shares in an answer."""
    return shared_from(name, content.config_records[PROTOCOL])


def read_masked(name: int, content: RecordDict) -> Masked:
    """The masked vector in an answer."""
    words: np.ndarray = content.array_records[WORDS]["words"].numpy()
    return Masked(name, words)


def read_revealed(name: int, content: RecordDict) -> Revealed:
    """The shares that an answer reveals."""
    return revealed_from(name, content.config_records[PROTOCOL])
