"""The strategies of Glasshouse as strategies of Flower: the server's side."""

import time
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput, named
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.conditions import Plan
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import ServerState, Strategy, Tensors
from glasshouse.federation.updates import Delivery, Update
from glasshouse.integrations.flower.framework import (
    ArrayRecord,
    ConfigRecord,
    FedAvg,
    Grid,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from glasshouse.integrations.flower.labels import NO_SUM, PROTOCOL, REPORT, SUMMED
from glasshouse.integrations.flower.records import (
    ROUND,
    logger,
    record_of,
    samples_in,
    tensors_of,
    vector_of,
)
from glasshouse.integrations.flower.replies import opens_sums
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.layout import Layout
from glasshouse.models.shapes import Shape

INTRODUCE = f"{MessageType.QUERY}.glasshouse"
"""The message by which the server asks how many samples a client holds."""

PAYLOAD = "glasshouse.payload"
"""The record of what clients receive with the model."""

ARRIVED = "arrived-round"
"""The setting by which a client learns which of its updates was the last to count."""

POLLING = 1.0
"""Seconds from one look for clients to the next."""


@dataclass(frozen=True)
class Member:
    """A client: its node, the number of its partition (or of the node) and its samples."""

    number: int
    node: int
    samples: int


class GlasshouseStrategy(FedAvg):
    """A strategy of Glasshouse, by name or as a value, whose clients run `GlasshouseClient` with the same.

    It trains `model` for images of `shape` (channels, height, width). A share `fraction` of the clients takes
    part in each round; it waits for `min_clients` before the first, and clients that connect later stay out.
    Clients are numbered by their partition, or by their node. What it draws follows from `seed`. A strategy
    that learns from `images` of the server gets them here. Clients have `patience` seconds to say how many
    samples they hold.
    """

    def __init__(
        self,
        strategy: str | Strategy,
        model: nn.Module,
        shape: Shape,
        classes: int,
        *,
        fraction: float = 1.0,
        min_clients: int = 2,
        images: Images | None = None,
        seed: int = 0,
        patience: float = 600.0,
    ) -> None:
        super().__init__(
            fraction_train=fraction,
            fraction_evaluate=0.0,
            min_train_nodes=1,
            min_available_nodes=min_clients,
        )
        self.strategy: Strategy = STRATEGIES.make(strategy) if isinstance(strategy, str) else strategy
        if self.strategy.needs_images and images is None:
            raise BadInput(
                f"{type(self.strategy).__name__} needs images of the server; give them as `images`, "
                "none that clients train on"
            )
        if self.strategy.sends_gradients:
            raise BadInput("clients in Flower reply with weights, not gradients; take 'fedsgd' as it is")
        self._module = laid_out(deepcopy(model))
        self._layout = Layout.of(model)
        self._shape, self._classes, self._seed = shape, classes, seed
        self._images = images or Images(torch.empty(0, *shape), torch.empty(0, dtype=torch.int64), classes)
        self._plan, self._patience = Plan(fraction=fraction), patience
        blank = Images(torch.zeros(2, *shape), torch.arange(2) % classes, classes)
        with torch.no_grad():
            self._reported = _form(self.strategy.report(self._module.eval(), blank))
        self._members: list[Member] = []
        self._memory: Tensors = {}
        self._arrived: dict[int, int] = {}
        self._sent = ArrayRecord()
        self._sums_alone = False

    def initial_arrays(self) -> ArrayRecord:
        """The model's own weights, as the first to send."""
        return record_of(self._module.state_dict())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients, and send them the model with what the strategy has for them."""
        self._sums_alone = opens_sums(grid)
        if self._sums_alone and self.strategy.needs_updates:
            raise BadInput(
                f"{type(self.strategy).__name__} looks at every client's update, of which SecureGrid shows "
                "only the sum; give the grid itself, or take a strategy that needs no more than the sum"
            )
        if not self._members:
            self._members = self._introduced(grid)
            self._memory = self.strategy.begin(self._server(0, vector_of(arrays, self._layout)))
        self._sent = arrays
        server = self._server(server_round - 1, vector_of(arrays, self._layout))
        chosen = self.strategy.choose(server, self._plan.participants(len(self._members)))
        payload = self.strategy.brief(server)
        return [self._message(client, server_round, arrays, config, payload) for client in chosen]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, from what arrived; none where nothing did."""
        valid, _ = self._check_and_log_replies(list(replies), is_train=True, validate=False)
        server = self._server(server_round - 1, vector_of(self._sent, self._layout))
        delivery = self._delivery(server, valid)
        if not delivery.clients:
            return None, None
        vector, self._memory = self.strategy.combine(server, delivery)
        self._arrived |= dict.fromkeys(delivery.clients, server_round)
        if not torch.isfinite(vector).all():
            raise BadInput(f"round {server_round} made the weights NaN or infinite; lower the clients' lr")
        arrays = record_of(tensors_of(self._sent) | self._layout.named(vector))
        return arrays, MetricRecord({"clients": len(delivery.clients), "num-examples": delivery.samples})

    def _server(self, number: int, vector: Tensor) -> ServerState:
        return ServerState(
            module=self._module,
            layout=self._layout,
            shape=self._shape,
            classes=self._classes,
            sizes=tuple(member.samples for member in self._members),
            images=self._images,
            seed=self._seed,
            number=number,
            vector=vector,
            memory=self._memory,
        )

    def _introduced(self, grid: Grid) -> list[Member]:
        """All clients that are connected and answer, by their numbers."""
        while len(nodes := list(grid.get_node_ids())) < self.min_available_nodes:
            logger.info("waiting for clients: %d of %d", len(nodes), self.min_available_nodes)
            time.sleep(POLLING)
        messages = [Message(RecordDict(), dst_node_id=node, message_type=INTRODUCE) for node in nodes]
        members = []
        for reply in grid.send_and_receive(messages, timeout=self._patience):
            node = reply.metadata.src_node_id
            if reply.has_error():
                logger.warning("node %d stays out: %s", node, reply.error.reason)
                continue
            try:
                members.append(_member(reply))
            except Exception as error:  # whatever a client sends, the others go on
                logger.warning("node %d stays out: it sent what cannot be read (%s)", node, named(error))
        if not any(member.samples for member in members):
            raise BadInput(
                "no client said how many samples it holds; have them run GlasshouseClient(...).app()"
            )
        return sorted(members, key=lambda member: (member.number, member.node))

    def _message(
        self, client: int, number: int, arrays: ArrayRecord, config: ConfigRecord, payload: Tensors
    ) -> Message:
        told = ConfigRecord({**config, ROUND: number, ARRIVED: self._arrived.get(client, 0)})
        records = {self.arrayrecord_key: arrays, self.configrecord_key: told}
        if payload:
            records[PAYLOAD] = record_of(payload)
        node = self._members[client].node
        return Message(RecordDict(records), dst_node_id=node, message_type=MessageType.TRAIN)

    def _delivery(self, server: ServerState, replies: Iterable[Message]) -> Delivery:
        """What arrived of the clients, as the channels of Glasshouse deliver it."""
        size, rows, reports = self._layout.size, [], {}
        for client, reply in self._from_members(replies):
            try:
                update = self._update(server, client, reply)
                report = self._report(reply)
            except Exception as error:  # whatever a client sends, the others go on
                node = self._members[client].node
                why = (
                    error if isinstance(error, BadInput) else f"it sent what cannot be read ({named(error)})"
                )
                logger.warning("round %d: node %d is left out: %s", server.number + 1, node, why)
                continue
            rows.append(update)
            if report:
                reports[client] = report
        if not rows:
            return Delivery(torch.zeros(size), 0, ())
        if self._sums_alone:  # all carry the same mean
            clients = tuple(row.client for row in rows)
            delivery = Delivery(rows[0].delta, sum(row.samples for row in rows), clients)
        else:
            delivery = Plain().deliver(rows, seed=0)
        mean = delivery.mean
        return Delivery(
            mean[:size],
            delivery.samples,
            delivery.clients,
            None if self._sums_alone else tuple(row.first(size) for row in rows),
            mean[size:] if len(mean) > size else None,
            reports,
        )

    def _report(self, reply: Message) -> Tensors:
        """What a client reports, if it is of the form that the strategy reports."""
        said = tensors_of(reply.content[REPORT]) if REPORT in reply.content else {}
        if _form(said) != self._reported or not all(torch.isfinite(entry).all() for entry in said.values()):
            raise BadInput(
                "its report has another form, or holds NaN; have it run GlasshouseClient with the same "
                "strategy"
            )
        return said

    def _from_members(self, replies: Iterable[Message]) -> Iterator[tuple[int, Message]]:
        """The replies by client, in the order of their numbers, the first of each."""
        places = {member.node: place for place, member in enumerate(self._members)}
        arrived: dict[int, Message] = {}
        for reply in replies:
            if (place := places.get(reply.metadata.src_node_id)) is not None:
                arrived.setdefault(place, reply)
        return iter(sorted(arrived.items()))

    def _update(self, server: ServerState, client: int, reply: Message) -> Update:
        """The change of the model, and what else is summed, in a reply that can be used."""
        if PROTOCOL in reply.content and not self._sums_alone:
            raise BadInput(NO_SUM)
        if self.arrayrecord_key not in reply.content:
            raise BadInput(f"it sent no {self.arrayrecord_key!r}; have it run GlasshouseClient")
        row = vector_of(reply.content[self.arrayrecord_key], self._layout) - server.vector
        if self.strategy.sums_more:
            if SUMMED not in reply.content:
                raise BadInput(f"it sent no {SUMMED!r}; have it run GlasshouseClient with the same strategy")
            summed = tensors_of(reply.content[SUMMED])["summed"]
            if summed.shape != (self._layout.trainable,):
                raise BadInput(f"what it sums has the shape {tuple(summed.shape)}")
            row = torch.cat([row, summed])
        if not torch.isfinite(row).all():
            raise BadInput("its update holds NaN or infinite entries; lower its learning rate")
        samples = self._members[client].samples
        if samples_in(reply.content, self.weighted_by_key) != samples:
            raise BadInput(
                f"it says that it holds another number of samples than {samples}, as it said before"
            )
        return Update(client, samples, row)


def _form(tensors: Tensors) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def _member(reply: Message) -> Member:
    said = reply.content["glasshouse.client"]
    number, samples = int(said["number"]), said["samples"]
    if not isinstance(samples, int) or samples < 0:
        raise BadInput(f"{samples} samples")
    return Member(number, reply.metadata.src_node_id, samples)
