"""The clients' side of a round: train, defend, send, in the engine's workers; and what comes of it."""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.errors import BadInput
from glasshouse.federation.canaries import CanaryClients
from glasshouse.federation.local import LastGradient, Received, client_seed, local_task
from glasshouse.federation.rows import RowWriter
from glasshouse.federation.strategies.strategy import LocalTask, Strategy, Tensors, byte_count
from glasshouse.federation.updates import Delivery, Row, StoredUpdate, Update, weighted_sum
from glasshouse.learning.evaluate import hits, own_accuracy
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.shared import Shared
from glasshouse.learning.step import Step, compose

NOTHING = torch.empty(0)


@dataclass(frozen=True, eq=False)
class Population:
    """Everything the clients hold, and a module to train in; each worker maps it into its memory once."""

    model: nn.Module
    layout: Layout
    pool: Shared
    clients: tuple[np.ndarray, ...]
    local_test: np.ndarray
    recipe: Recipe
    strategy: Strategy
    defences: Stack
    canaries: CanaryClients | None = None

    def samples(self, client: int) -> int:
        """Of how many images a client says that its update is."""
        if self.canaries is not None and client in self.canaries:
            return self.canaries.samples
        return len(self.clients[client])


@dataclass(frozen=True, eq=False)
class RoundInputs:
    """What the clients of a round start from.

    The server sends the `payload` to all, and the `model`, shape (P,), to all but those in `apart`, which get
    the one named there. `kept` is what each client remembers of its last round.
    """

    model: np.ndarray
    apart: Mapping[int, np.ndarray]
    payload: Tensors
    kept: Mapping[int, Tensors]


@dataclass(frozen=True, eq=False)
class Block:
    """A few clients of one round, for one worker; their single updates are sent, or the sum of them.

    In the sum they weigh by their samples, or all the `equal`. With `shares`, each adds its part of the noise
    that so many of them make. The learning rate may follow from the number of the `round`; it is null where
    no plan has the round.
    """

    population: Shared
    inputs: Shared
    clients: tuple[int, ...]
    samples: int
    seed: int
    keep_updates: bool
    equal: bool = False
    shares: int | None = None
    round: int | None = None


@dataclass(frozen=True, eq=False)
class BlockResult:
    """What the clients of a block send, or the weighted sum of it, and what they report.

    A row of `deltas` is the change of the model, shape (P,), followed by what else the strategy sums. Clients
    that refused the model are not among `clients`, but in `refused`, with their reason. Of each trained model
    there is the accuracy on all test images, and on those of the classes that the client holds. `seconds` are
    those of a core that it took.
    """

    deltas: np.ndarray
    clients: tuple[int, ...]
    refused: dict[int, str]
    accuracies: tuple[tuple[float, float | None], ...]
    reports: dict[int, Tensors]
    kept: dict[int, Tensors]
    seconds: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """A round's delivery, the mean accuracies of the participants' models, and what the participants keep.

    `own_accuracy` is on the classes that each of them holds. `bytes` is what one client sends, on average;
    `seconds` are those of a core that clients and channel took.
    """

    delivery: Delivery
    accuracy: float | None
    own_accuracy: float | None
    kept: dict[int, Tensors]
    bytes: int
    seconds: float


class Replies:
    """Collects what the blocks of a round return: replies, refusals with their reasons, and accuracies."""

    def __init__(self) -> None:
        self.clients: list[int] = []
        self.reports: dict[int, Tensors] = {}
        self.refused: dict[int, str] = {}
        self.seconds = 0.0
        self._kept: dict[int, Tensors] = {}
        self._accuracies: list[tuple[float, float | None]] = []

    def collect(self, results: Iterable[BlockResult]) -> Iterator[Tensor]:
        """The deltas of each block in which a client trained, as it arrives."""
        for result in results:
            self.clients += result.clients
            self.reports |= result.reports
            self._kept |= result.kept
            self.refused |= result.refused
            self._accuracies += result.accuracies
            self.seconds += result.seconds
            if result.clients:
                yield torch.from_numpy(result.deltas)

    def held(self, arriving: Iterable[Tensor], sizes: Sequence[int]) -> list[Update]:
        """The updates in memory; a client has as many samples as `sizes` says."""
        deltas = torch.cat(list(arriving) or [NOTHING])
        return [Update(k, sizes[k], delta) for k, delta in zip(self.clients, deltas)]

    def stored(self, arriving: Iterable[Tensor], sizes: Sequence[int], file: Path | None) -> list[Update]:
        """The updates in `file`, which grows as they arrive, or in one without a name."""
        with RowWriter(file) as writer:
            for deltas in arriving:
                writer.add(deltas.numpy())
            if not self.clients:
                return []
            rows = writer.finish()
        return [StoredUpdate(k, sizes[k], Row(rows, place)) for place, k in enumerate(self.clients)]

    def separated(self, delivery: Delivery, length: int) -> Delivery:
        """The delivery with the change of the model, `length` entries, apart from what else is summed."""
        summed = delivery.mean[length:] if len(delivery.mean) > length else None
        updates = delivery.updates
        if updates is not None and summed is not None:
            updates = tuple(update.first(length) for update in updates)
        reports = {k: self.reports[k] for k in delivery.clients if self.reports[k]}
        return dataclasses.replace(
            delivery, mean=delivery.mean[:length], updates=updates, summed=summed, reports=reports
        )

    def outcome(self, delivery: Delivery) -> Outcome:
        """The outcome of the round; clients whose update is not in `delivery` keep what they had before."""
        everywhere = [share for share, _ in self._accuracies]
        own = [share for _, share in self._accuracies if share is not None]
        kept = {k: self._kept[k] for k in delivery.clients if self._kept[k]}
        plain = {"model": delivery.mean} | ({} if delivery.summed is None else {"summed": delivery.summed})
        sent = byte_count(plain) if delivery.protocol_up is None else delivery.protocol_up
        reported = [byte_count(report) for report in delivery.reports.values()]
        mean_report = sum(reported) // max(1, len(reported))
        return Outcome(
            delivery,
            fmean(everywhere) if everywhere else None,
            fmean(own) if own else None,
            kept,
            sent + mean_report,
            self.seconds,
        )


def check_clients(clients: Sequence[int], apart: Mapping[int, Tensor], count: int) -> None:
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


def train_block(block: Block) -> BlockResult:
    """Train the clients of `block`."""
    _warm_up()
    began = time.process_time()
    population: Population = block.population.get()
    inputs: RoundInputs = block.inputs.get()
    received = {k: torch.from_numpy(inputs.apart.get(k, inputs.model)) for k in block.clients}
    refused = {k: reason for k in block.clients if (reason := _refusal(population, received[k]))}
    willing = tuple(client for client in block.clients if client not in refused)
    accuracies: list[tuple[float, float | None]] = []
    reports: dict[int, Tensors] = {}
    kept: dict[int, Tensors] = {}

    def updates() -> Iterator[Update]:
        for client in willing:
            task = _local_task(population, inputs, received[client], client, block, accuracies)
            with torch.no_grad():
                reports[client] = population.strategy.report(task.module.eval(), task.images)
            reply = population.strategy.train(task)
            kept[client] = reply.kept
            row = reply.delta if reply.summed is None else torch.cat([reply.delta, reply.summed])
            yield Update(client, 1 if block.equal else population.samples(client), row)

    if not willing:
        deltas = NOTHING
    elif block.keep_updates:
        deltas = _table(updates(), len(willing))
    else:
        deltas = weighted_sum(updates(), block.samples)
    seconds = time.process_time() - began
    return BlockResult(deltas.numpy(), willing, refused, tuple(accuracies), reports, kept, seconds)


@cache
def _warm_up() -> None:
    """Train a tiny network: what torch loads at the first step of a process is no cost of any training."""
    with torch.random.fork_rng(devices=[]):
        network = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1, 2))
    images = Images(torch.zeros(2, 1, 3, 3), torch.tensor([0, 1]), 2)
    fit(network, read_vector(network), images, Recipe(), seed=0)


def _table(updates: Iterable[Update], count: int) -> Tensor:
    """The deltas of `count` updates as rows, written there as they come."""
    arriving = iter(updates)
    first = next(arriving).delta
    table = torch.empty(count, len(first), dtype=first.dtype)
    table[0] = first
    for row, update in zip(table[1:], arriving):
        row.copy_(update.delta)
    return table


def _refusal(population: Population, received: Tensor) -> str | None:
    """Why a client does not train the model it received, shape (P,); null where it does."""
    if not population.defences.vets:
        return None
    write_vector(population.model, received)
    return population.defences.on_receive(population.model, population.pool.get().shape)


def _local_task(
    population: Population,
    inputs: RoundInputs,
    sent: Tensor,
    client: int,
    block: Block,
    accuracies: list[tuple[float, float | None]],
) -> LocalTask:
    """The client's part of the round; its `fit` adds the accuracies of the trained model to `accuracies`."""
    recipe = population.strategy.local(population.recipe).in_round(block.round)
    pool: Images = population.pool.get()
    images = pool[population.clients[client]]

    def change(step: Step) -> Tensor:
        if population.canaries is not None and client in population.canaries:
            return population.canaries.update(client, population.layout)
        last = LastGradient()
        heard = compose(step, last) if population.strategy.sends_gradients else step
        trained = fit(population.model, sent, images, recipe, client_seed(block.seed, client), heard)
        if len(population.local_test):
            tested = pool[population.local_test]
            right = hits(population.model, tested)
            own = own_accuracy(right, tested.y, images.label_counts())
            accuracies.append((right.double().mean().item(), own))
        if population.strategy.sends_gradients:
            return last.change(trained - sent, recipe.rates(len(images))[-1])
        return trained - sent

    return local_task(
        population.model,
        population.layout,
        Received(sent, inputs.payload, inputs.kept.get(client, {})),
        images,
        recipe,
        population.defences,
        seed=block.seed,
        client=client,
        shares=block.shares,
        change=change,
    )
