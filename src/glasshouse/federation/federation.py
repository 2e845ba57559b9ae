"""The round loop: choose, send, train, deliver, combine."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.data.split import Split
from glasshouse.defences.defence import Stack
from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import Channel, Plain, RoundFailed, sum_in_order
from glasshouse.federation.clients import Block, Devices, Trained, train_block
from glasshouse.federation.history import History, Observed, Record, Round
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.federation.updates import Delivery, Update, blocks
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.examiner import Examiner
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a federation runs and what is watched meanwhile.

    A fraction `fraction` of the clients takes part in each round; the run ends after `rounds`, or when the
    global test accuracy reaches `target_accuracy`. The server's view is kept for the rounds in `observe`.
    """

    rounds: int = 10
    fraction: float = 1.0
    target_accuracy: float | None = None
    observe: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise BadInput(f"rounds = {self.rounds} is out of range; it must be at least 1")
        if not 0 < self.fraction <= 1:
            raise BadInput(f"fraction = {self.fraction} is out of range; it must lie in (0, 1]")

    def participants(self, clients: int) -> int:
        """How many of `clients` take part in a round."""
        return max(1, math.floor(self.fraction * clients + 0.5))


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
        self._engine = engine
        self._seed = seed
        self._split = split
        module = laid_out(deepcopy(model))
        self._devices = engine.share(
            Devices(
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
        self.examiner = Examiner(module, split.pool, split.test, engine)

    def through(self, channel: Channel) -> "Federation":
        """The same federation, whose updates travel through `channel`."""
        other = copy(self)
        other.channel = channel
        return other

    def training(self, model: nn.Module) -> "Federation":
        """The same clients, training another network."""
        other = copy(self)
        module = laid_out(deepcopy(model))
        other.layout = Layout.of(model)
        devices: Devices = self._devices.get()
        other._devices = self._engine.share(dataclasses.replace(devices, model=module, layout=other.layout))
        other.examiner = Examiner(module, self._split.pool, self._split.test, self._engine)
        return other

    def exchange(
        self,
        sent: Tensor,
        clients: Sequence[int],
        number: int,
        *,
        apart: Mapping[int, Tensor] | None = None,
        keep_updates: bool = True,
    ) -> tuple[Delivery, float | None]:
        """Send a model to `clients` and return what the channel delivers, and their mean local accuracy.

        Clients in `apart` get the model named there instead. Clients that refuse the model send nothing;
        raises `RoundFailed` where all do, or where too few are left for the channel.
        """
        samples = sum(self.sizes[client] for client in clients)
        whole = keep_updates or not self.channel.shows_updates
        own = {client: vector.numpy() for client, vector in (apart or {}).items()}
        parcel = self._engine.share((sent.numpy(), own, self.strategy.brief(number, sent)))
        groups = blocks(clients)
        seed = derive(self._seed, "round", number)
        jobs = [Block(self._devices, parcel, group, samples, seed, whole) for group in groups]
        replies = _Replies()
        arriving = replies.unpack(self._engine.map(train_block, jobs))
        deltas = torch.cat(list(arriving)) if whole else sum_in_order(arriving)
        parcel.remove()
        if not replies.clients:
            raise RoundFailed(f"every client refused the model: {next(iter(replies.refused.values()))}")
        if whole:
            updates = [Update(k, self.sizes[k], delta) for k, delta in zip(replies.clients, deltas)]
            delivery = self.channel.deliver(updates, derive(seed, "channel"))
        else:
            replied = sum(self.sizes[client] for client in replies.clients)
            mean = deltas if replied == samples else deltas * (samples / replied)
            delivery = Delivery(mean, replied, tuple(replies.clients))
        return self._defended(delivery, seed), replies.accuracy

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
        record = record or Record()
        history = record.load() or History(start)
        self.strategy.restore(history.memory)
        count = plan.participants(len(self.sizes))
        with (progress or Progress(quiet=True)).task(label, plan.rounds, done=len(history.rounds)) as task:
            while not _finished(history, plan):
                number = len(history.rounds)
                rng = numpy_rng(self._seed, "choose", number)
                chosen = self.strategy.choose(number, len(self.sizes), count, rng)
                watched = number in plan.observe
                delivery, acc_local = self._round(history.vector, chosen, number, watched, label)
                if watched:
                    record.observe(Observed(number, history.vector, delivery))
                vector = self.strategy.combine(history.vector, delivery)
                if not torch.isfinite(vector).all():
                    raise BadInput(f"{label}: round {number + 1} made the weights NaN or infinite; lower lr")
                row = Round(number, tuple(chosen), self.examiner.accuracy(vector), acc_local)
                history = History(vector, (*history.rounds, row), self.strategy.state())
                record.save(history)
                task.advance()
        return history

    def _round(
        self, sent: Tensor, clients: Sequence[int], number: int, watched: bool, label: str
    ) -> tuple[Delivery, float | None]:
        try:
            return self.exchange(sent, clients, number, keep_updates=watched)
        except RoundFailed as failure:
            raise BadInput(f"{label}: round {number + 1} failed: {failure}") from failure

    def _defended(self, delivery: Delivery, seed: int) -> Delivery:
        mean = self.defences.on_aggregate(delivery.mean, self.layout, torch_rng(seed, "aggregate"))
        return dataclasses.replace(delivery, mean=mean)


class _Replies:
    """Who replied in a round, who refused and why, and how good the replying clients' own models are."""

    def __init__(self) -> None:
        self.clients: list[int] = []
        self.refused: dict[int, str] = {}
        self._accuracies: list[float] = []

    def unpack(self, trained: Iterable[Trained]) -> Iterator[Tensor]:
        """The deltas of each block as it arrives."""
        for result in trained:
            self.clients += result.clients
            self.refused |= result.refused
            self._accuracies += result.accuracies
            yield torch.from_numpy(result.deltas)

    @property
    def accuracy(self) -> float | None:
        """The mean local test accuracy, where it was measured."""
        return sum(self._accuracies) / len(self._accuracies) if self._accuracies else None


def _finished(history: History, plan: Plan) -> bool:
    if not history.rounds:
        return False
    reached = (
        plan.target_accuracy is not None and (history.rounds[-1].acc_global or 0) >= plan.target_accuracy
    )
    return reached or len(history.rounds) >= plan.rounds
