"""The round loop: choose, send, train, deliver, combine."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshouse.data.split import Split
from glasshouse.defences.defence import Stack
from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import Channel, Plain, RoundFailed, sum_in_order
from glasshouse.federation.clients import (
    Block,
    Outcome,
    Population,
    Replies,
    RoundInputs,
    train_block,
)
from glasshouse.federation.history import History, Observed, Record, Round
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import ServerState, Strategy, Tensors, byte_count
from glasshouse.federation.updates import Delivery, blocks, pieces
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import Evaluator
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.progress import Progress

IN_MEMORY = 256 * 2**20
"""Up to so many bytes, the updates of a round that nobody keeps stay in memory."""

IN_TRANSIT = 32 * 2**20
"""As many bytes of updates leave a worker at a time."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a federation runs and which rounds are recorded.

    A fraction `fraction` of the clients takes part in each round; the run ends after `rounds`, or when the
    global test accuracy reaches `target_accuracy`. The server's view is kept for the rounds in `observe`,
    with every single update if `observe_updates`, else with their mean alone.
    """

    rounds: int = 10
    fraction: float = 1.0
    target_accuracy: float | None = None
    observe: tuple[int, ...] = ()
    observe_updates: bool = True

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise BadInput(f"rounds = {self.rounds} is out of range; it must be at least 1")
        if not 0 < self.fraction <= 1:
            raise BadInput(f"fraction = {self.fraction} is out of range; it must lie in (0, 1]")

    def participants(self, clients: int) -> int:
        """How many of `clients` take part in a round."""
        return max(1, math.floor(self.fraction * clients + 0.5))


class Diverged(BadInput):
    """The training left the numbers that float32 can hold."""


class Federation:
    """Clients with their data, a server with a strategy, and the channel between them.

    Each participant's model is scored on `local_test` test images, the same for all (0: on none).
    """

    def __init__(
        self,
        model: nn.Module,
        split: Split,
        recipe: Recipe,
        *,
        engine: Engine,
        strategy: Strategy | None = None,
        defences: Stack | None = None,
        channel: Channel | None = None,
        local_test: int = 0,
        seed: int = 0,
    ) -> None:
        self.strategy = strategy or FedAvg()
        self.defences = defences or Stack([])
        self.channel = channel or Plain()
        self.layout = Layout.of(model)
        self.recipe = self.strategy.local(recipe)
        self.shape, self.classes = split.pool.shape, split.pool.classes
        self.sizes = [len(indices) for indices in split.clients]
        self._engine, self._seed, self._split = engine, seed, split
        self._server_images = split.images("auxiliary") if self.strategy.needs_images else split.pool[:0]
        self._module = module = laid_out(deepcopy(model))
        self._population = engine.share(
            Population(
                model=module,
                layout=self.layout,
                pool=engine.share_images(split.pool),
                clients=split.clients,
                local_test=numpy_rng(seed, "local test").permutation(split.test)[:local_test],
                recipe=recipe,
                strategy=self.strategy,
                defences=self.defences,
            )
        )
        self.evaluator = Evaluator(module, split.pool, split.test, engine)

    def through(self, channel: Channel) -> "Federation":
        """The same federation, whose updates travel through `channel`."""
        other = copy(self)
        other.channel = channel
        return other

    def training(self, model: nn.Module) -> "Federation":
        """The same clients, training another network."""
        other = copy(self)
        other._module = module = laid_out(deepcopy(model))
        other.layout = Layout.of(model)
        population = dataclasses.replace(self._population.get(), model=module, layout=other.layout)
        other._population = self._engine.share(population)
        other.evaluator = Evaluator(module, self._split.pool, self._split.test, self._engine)
        return other

    def exchange(
        self,
        sent: Tensor,
        clients: Sequence[int],
        number: int,
        *,
        apart: Mapping[int, Tensor] | None = None,
        payload: Tensors | None = None,
        kept: Mapping[int, Tensors] | None = None,
        keep_updates: bool = True,
        file: Path | None = None,
    ) -> Outcome:
        """Send the model `sent`, shape (P,), to `clients`, have them train it, and return the outcome.

        Clients in `apart` get the model named there instead, and all of them the `payload`; `kept` is what
        clients remember of earlier rounds. Clients that refuse the model send nothing; raises `RoundFailed`
        where all do, or where too few are left for the channel. Single updates are written to `file`, or to
        one without a name where they are too large for memory.
        """
        _check_clients(clients, apart or {}, len(self.sizes))
        samples = sum(self.sizes[client] for client in clients)
        whole = keep_updates or not self.channel.shows_updates or self.channel.loses_updates
        models = {client: vector.numpy() for client, vector in (apart or {}).items()}
        inputs = self._engine.share(RoundInputs(sent.numpy(), models, payload or {}, kept or {}))
        size = self.layout.size * sent.element_size()
        groups = pieces(clients, max(1, IN_TRANSIT // size)) if whole else blocks(clients)
        seed = derive(self._seed, "round", number)
        jobs = [Block(self._population, inputs, group, samples, seed, whole) for group in groups]
        replies = Replies()
        arriving = replies.collect(self._engine.map(train_block, jobs))
        if whole:
            in_file = file is not None or size * len(clients) > IN_MEMORY
            updates = (
                replies.stored(arriving, self.sizes, file) if in_file else replies.held(arriving, self.sizes)
            )
        else:
            total = sum_in_order(arriving)
        inputs.remove()
        if not replies.clients:
            raise RoundFailed(f"every client refused the model: {next(iter(replies.refused.values()))}")
        if whole:
            delivery = self.channel.deliver(updates, derive(seed, "channel"))
        else:
            replied = sum(self.sizes[client] for client in replies.clients)
            mean = total if replied == samples else total * (samples / replied)
            delivery = Delivery(mean, replied, tuple(replies.clients))
        delivery = self._separated(delivery, replies)
        mean = self.defences.on_aggregate(delivery.mean, self.layout, torch_rng(seed, "aggregate"))
        return replies.outcome(dataclasses.replace(delivery, mean=mean))

    def run(
        self,
        start: Tensor,
        plan: Plan,
        *,
        record: Record | None = None,
        progress: Progress | None = None,
        label: str = "federation",
    ) -> History:
        """Run the rounds of `plan` from the model `start`, shape (P,); continues where `record` stopped."""
        check_compatible(self.strategy, self.channel, self.defences)
        record = record or Record()
        history = record.load() or History(start, memory=self.strategy.begin(self._server(0, start, {})))
        count = plan.participants(len(self.sizes))
        with (progress or Progress(quiet=True)).task(label, plan.rounds, done=len(history.rounds)) as task:
            while not _finished(history, plan):
                history = self._round(history, count, plan, record, label)
                record.save(history)
                task.advance()
        return history

    def _round(self, history: History, count: int, plan: Plan, record: Record, label: str) -> History:
        number = len(history.rounds)
        server = self._server(number, history.vector, history.memory)
        chosen = self.strategy.choose(server, count)
        payload = self.strategy.brief(server)
        watched = number in plan.observe
        every_update = watched and plan.observe_updates
        try:
            outcome = self.exchange(
                history.vector,
                chosen,
                number,
                payload=payload,
                kept={client: history.kept[client] for client in chosen if client in history.kept},
                keep_updates=every_update or self.strategy.needs_updates,
                file=record.updates_file(number) if every_update and self.channel.shows_updates else None,
            )
        except RoundFailed as failure:
            raise BadInput(f"{label}: round {number + 1} failed: {failure}") from failure
        if watched:
            seen = outcome.delivery if every_update else dataclasses.replace(outcome.delivery, updates=None)
            record.observe(Observed(number, history.vector, seen, payload))
        vector, memory = self.strategy.combine(server, outcome.delivery)
        if not torch.isfinite(vector).all():
            raise Diverged(f"{label}: round {number + 1} made the weights NaN or infinite; lower lr")
        row = Round(
            number,
            tuple(chosen),
            self.evaluator.accuracy(vector),
            outcome.accuracy,
            down=byte_count({"model": history.vector}) + byte_count(payload),
            up=outcome.bytes,
        )
        return History(vector, (*history.rounds, row), memory, {**history.kept, **outcome.kept})

    def _server(self, number: int, vector: Tensor, memory: Tensors) -> ServerState:
        """The server in round `number`."""
        return ServerState(
            module=self._module,
            layout=self.layout,
            shape=self.shape,
            classes=self.classes,
            sizes=tuple(self.sizes),
            images=self._server_images,
            seed=self._seed,
            number=number,
            vector=vector,
            memory=memory,
        )

    def _separated(self, delivery: Delivery, replies: Replies) -> Delivery:
        """The delivery with the change of the model separated from what else the strategy sums."""
        length = self.layout.size
        summed = delivery.mean[length:] if len(delivery.mean) > length else None
        updates = delivery.updates
        if updates is not None and summed is not None:
            updates = tuple(update.first(length) for update in updates)
        reports = {k: replies.reports[k] for k in delivery.clients if replies.reports[k]}
        return dataclasses.replace(
            delivery, mean=delivery.mean[:length], updates=updates, summed=summed, reports=reports
        )


def check_compatible(strategy: Strategy, channel: Channel, defences: Stack) -> None:
    """Refuse a strategy that needs more than a channel shows, or than a defence of the sum covers."""
    name = type(strategy).__name__
    if strategy.needs_updates and not channel.shows_updates:
        raise BadInput(
            f"{name} looks at every client's update, of which this channel shows only the sum; "
            'take the channel "plain", or a strategy that needs no more than the sum'
        )
    if defences.guards_sum and (strategy.needs_updates or strategy.sums_more):
        more = "looks at every client's update" if strategy.needs_updates else "sums more than the updates"
        raise BadInput(
            f"{name} {more}, which a defence of their sum (differential-privacy) does not cover; "
            "take another strategy, or defences that clients apply"
        )


def _check_clients(clients: Sequence[int], apart: Mapping[int, Tensor], count: int) -> None:
    """Refuse an exchange with no client, with clients that do not exist, or with one client twice."""
    if not len(clients):
        raise BadInput("clients is empty; an exchange needs at least one of them")
    unknown = [client for client in clients if client not in range(count)]
    if unknown:
        raise BadInput(f"client {unknown[0]} does not exist; the federation's clients are 0 to {count - 1}")
    if len(set(clients)) < len(clients):
        twice = next(client for client in clients if list(clients).count(client) > 1)
        raise BadInput(f"client {twice} is named more than once; name every client of an exchange once")
    outsiders = [client for client in apart if client not in set(clients)]
    if outsiders:
        raise BadInput(
            f"client {outsiders[0]} gets a model of its own (apart) but takes no part in the exchange; "
            "add it to clients"
        )


def _finished(history: History, plan: Plan) -> bool:
    if not history.rounds:
        return False
    target, reached = plan.target_accuracy, history.rounds[-1].acc_global or 0
    return len(history.rounds) >= plan.rounds or (target is not None and reached >= target)
