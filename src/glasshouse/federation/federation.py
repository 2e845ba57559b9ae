"""The round loop: choose, send, train, deliver, combine."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshouse.data.split import Split
from glasshouse.defences.defence import Stack
from glasshouse.defences.promise import Conditions
from glasshouse.errors import BadInput
from glasshouse.federation.canaries import CanaryClients
from glasshouse.federation.channels.channel import Channel, NobodySent, Plain, RoundFailed, sum_in_order
from glasshouse.federation.clients import (
    Block,
    Outcome,
    Population,
    Replies,
    RoundInputs,
    check_clients,
    train_block,
)
from glasshouse.federation.conditions import (
    PROBE_ROUNDS,
    Plan,
    check_compatible,
    check_uncut,
    conditions_of,
    defended_channel,
    finished,
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

__all__ = ["Diverged", "Federation", "Plan", "check_compatible", "conditions_of", "defended_channel"]

IN_MEMORY = 256 * 2**20
"""Up to so many bytes, the updates of a round that nobody keeps stay in memory."""

IN_TRANSIT = 32 * 2**20
"""As many bytes of updates leave a worker at a time."""


class Diverged(BadInput):
    """The training left the numbers that float32 can hold."""


class Federation:
    """Clients with their data, a server with a strategy, and the channel between them.

    Each participant's model is scored on `local_test` test images, the same for all (0: on none). Clients
    that are `canaries` do not train, and send what they are told to.
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
        canaries: CanaryClients | None = None,
        seed: int = 0,
    ) -> None:
        self.strategy = strategy or FedAvg()
        self.defences = defences or Stack([])
        self.channel = defended_channel(channel or Plain(), self.defences)
        self.layout = Layout.of(model)
        recipe = self.defences.recipe(recipe)
        self.recipe = self.strategy.local(recipe)
        self.defences.check(model, self.recipe)
        self.shape, self.classes = split.pool.shape, split.pool.classes
        self._engine, self._seed, self._split = engine, seed, split
        self._server_images = split.images("auxiliary") if self.strategy.needs_images else split.pool[:0]
        self._module = module = laid_out(deepcopy(model))
        population = Population(
            model=module,
            layout=self.layout,
            pool=engine.share_images(split.pool),
            clients=split.clients,
            local_test=numpy_rng(seed, "local test").permutation(split.test)[:local_test],
            recipe=recipe,
            strategy=self.strategy,
            defences=self.defences,
            canaries=canaries,
        )
        self.sizes = [population.samples(client) for client in range(len(split.clients))]
        self._population = engine.share(population)
        self.evaluator = Evaluator(module, split.pool, split.test, engine)
        stopping = self.defences.stopping()
        images = 0 if stopping is None else stopping.images
        held_out = numpy_rng(seed, "held out").permutation(split.auxiliary)[:images]
        self._held_out = Evaluator(module, split.pool, held_out, engine) if len(held_out) else None

    def conditions(self, plan: Plan) -> Conditions:
        """What everybody knows of a training by `plan`."""
        return conditions_of(self.strategy, self.channel, self.recipe, self.sizes, plan, self.layout.size)

    def settled(self, plan: Plan) -> "Federation":
        """The same federation, with defences that are settled for a training by `plan`."""
        defences = self.defences.settled(self.conditions(plan))
        if defences is self.defences:
            return self
        other = copy(self)
        other.defences = defences
        population = dataclasses.replace(self._population.get(), defences=defences)
        other._population = self._engine.share(population)
        return other

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
        where all do, or where too few are left for the channel or for the noise they share. Single updates
        are written to `file`, or to one without a name where they are too large for memory.
        """
        check_clients(clients, apart or {}, len(self.sizes))
        divisor = self.defences.divisor
        weights = self.sizes if divisor is None else [1] * len(self.sizes)
        samples = sum(weights[client] for client in clients)
        shares = None if self.channel.shows_updates else self.channel.fewest(len(clients))
        whole = keep_updates or not self.channel.shows_updates or self.channel.loses_updates
        models = {client: vector.numpy() for client, vector in (apart or {}).items()}
        inputs = self._engine.share(RoundInputs(sent.numpy(), models, payload or {}, kept or {}))
        size = self.layout.size * sent.element_size()
        groups = pieces(clients, max(1, IN_TRANSIT // size)) if whole else blocks(clients)
        seed = derive(self._seed, "round", number)
        planned = number if number < PROBE_ROUNDS else None
        jobs = [
            Block(self._population, inputs, group, samples, seed, whole, divisor is not None, shares, planned)
            for group in groups
        ]
        replies = Replies()
        arriving = replies.collect(self._engine.map(train_block, jobs))
        if whole:
            in_file = file is not None or size * len(clients) > IN_MEMORY
            updates = replies.stored(arriving, weights, file) if in_file else replies.held(arriving, weights)
        else:
            total = sum_in_order(arriving)
        inputs.remove()
        if not replies.clients:
            raise RoundFailed(f"every client refused the model: {next(iter(replies.refused.values()))}")
        if whole:
            began = time.process_time()
            delivery = self.channel.deliver(updates, derive(seed, "channel"))
            replies.seconds += time.process_time() - began
        else:
            replied = sum(weights[client] for client in replies.clients)
            mean = total if replied == samples else total * (samples / replied)
            delivery = Delivery(mean, replied, tuple(replies.clients))
        if divisor is not None:
            delivery = delivery.divided(divisor, self.sizes)
        left = len(delivery.clients)
        if divisor is not None and shares is not None and left < shares:
            raise RoundFailed(f"{left} clients are left, and their noise takes {shares}: no sum is opened")
        return replies.outcome(self._defended(replies.separated(delivery, self.layout.size), number))

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
        if plan.patience is not None and self._held_out is None:
            raise BadInput(
                "early-stopping looks at images that nobody trains on, and there are none; "
                "set data.auxiliary above 0"
            )
        settled = self.settled(plan)
        if settled is not self:
            return settled.run(start, plan, record=record, progress=progress, label=label)
        check_uncut(self.channel, self.defences, plan.participants(len(self.sizes)))
        record = record or Record()
        history = record.load() or History(start, memory=self.strategy.begin(self._server(0, start, {})))
        count = plan.participants(len(self.sizes))
        with (progress or Progress(quiet=True)).task(label, plan.rounds, done=len(history.rounds)) as task:
            while not finished(history, plan):
                history = self._round(history, count, plan, record, label)
                record.save(history)
                task.advance()
        return history

    def _round(self, history: History, count: int, plan: Plan, record: Record, label: str) -> History:
        number = len(history.rounds)
        server = self._server(number, history.vector, history.memory)
        chosen = self._cohort(server, count, plan)
        payload = self.strategy.brief(server)
        watched = number in plan.observe and bool(chosen)
        every_update = watched and plan.observe_updates
        try:
            outcome = (
                self._without_clients(number)
                if not chosen
                else self.exchange(
                    history.vector,
                    chosen,
                    number,
                    payload=payload,
                    kept={client: history.kept[client] for client in chosen if client in history.kept},
                    keep_updates=every_update or self.strategy.needs_updates,
                    file=record.updates_file(number) if every_update and self.channel.shows_updates else None,
                )
            )
        except RoundFailed as failure:
            if not isinstance(failure, NobodySent) or self.defences.divisor is None:
                raise BadInput(f"{label}: round {number + 1} failed: {failure}") from failure
            outcome, watched = self._without_clients(number), False
        if watched:
            seen = outcome.delivery if every_update else dataclasses.replace(outcome.delivery, updates=None)
            record.observe(Observed(number, history.vector, seen, payload))
        began = time.process_time()
        vector, memory = self.strategy.combine(server, outcome.delivery)
        seconds = outcome.seconds + time.process_time() - began
        if not torch.isfinite(vector).all():
            raise Diverged(f"{label}: round {number + 1} made the weights NaN or infinite; lower lr")
        acc_global, acc_global_own = self.evaluator.accuracies(vector, (self._labels(k) for k in chosen))
        row = Round(
            number,
            tuple(chosen),
            acc_global,
            outcome.accuracy,
            down=byte_count({"model": history.vector}) + byte_count(payload) + outcome.delivery.protocol_down,
            up=outcome.bytes,
            acc_held_out=None if self._held_out is None else self._held_out.accuracy(vector),
            acc_global_own=acc_global_own,
            acc_local_own=outcome.own_accuracy,
            seconds=round(seconds, 4),
        )
        return History(vector, (*history.rounds, row), memory, {**history.kept, **outcome.kept})

    def _cohort(self, server: ServerState, count: int, plan: Plan) -> list[int]:
        """Who takes part: `count` clients, or so many on average where each must have its own draw."""
        if not self.defences.poisson(self.conditions(plan)):
            return self.strategy.choose(server, count)
        drawn = server.rng("choose").random(len(self.sizes)) < count / len(self.sizes)
        return [client for client, taken in enumerate(drawn) if taken]

    def _without_clients(self, number: int) -> Outcome:
        """A round in which nobody was drawn, or nobody was left: what the defences add to nothing."""
        nothing = Delivery(torch.zeros(self.layout.size), 0, ())
        return Outcome(self._defended(nothing, number), None, None, {}, 0, 0.0)

    def _labels(self, client: int) -> Tensor:
        """How many images of each class a client holds, shape (classes,)."""
        labels = self._split.pool.y[torch.from_numpy(self._split.clients[client])]
        return torch.bincount(labels, minlength=self.classes)

    def _defended(self, delivery: Delivery, number: int) -> Delivery:
        """The delivery as the server may use it."""
        rng = torch_rng(derive(self._seed, "round", number), "aggregate")
        masked = not self.channel.shows_updates
        mean = self.defences.on_aggregate(delivery.mean, self.layout, rng, masked=masked)
        return dataclasses.replace(delivery, mean=mean)

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
