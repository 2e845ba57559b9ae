"""The clients' side of a round: train, defend, send. Runs in the engine's workers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.federation.strategies.strategy import LocalTask, Strategy, Tensors
from glasshouse.federation.updates import Update, weighted_sum
from glasshouse.learning.evaluate import accuracy
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.learning.shared import Shared
from glasshouse.learning.step import PLAIN, Step, compose

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


@dataclass(frozen=True, eq=False)
class Parcel:
    """What the server sends in a round, and beside it what each client has `kept` of its last one.

    All get the payload and the `model`, shape (P,), but for clients that get one of their own, `apart`.
    """

    model: np.ndarray
    apart: Mapping[int, np.ndarray]
    payload: Tensors
    kept: Mapping[int, Tensors]


@dataclass(frozen=True, eq=False)
class Block:
    """A few clients of one round, for one worker; `sent` is their parcel."""

    population: Shared
    sent: Shared
    clients: tuple[int, ...]
    samples: int
    seed: int
    keep_updates: bool


@dataclass(frozen=True, eq=False)
class Trained:
    """What a block comes back with: what each client sends, or the weighted sum of it, and what it tells.

    A row of `deltas` is the change of the model, shape (P,), and what the strategy sums beside it. Clients
    that refused the model are not among `clients`, but in `refused`, with their reason.
    """

    deltas: np.ndarray
    clients: tuple[int, ...]
    refused: dict[int, str]
    accuracies: tuple[float, ...]
    reports: dict[int, Tensors]
    kept: dict[int, Tensors]


def train_block(block: Block) -> Trained:
    """Train the clients of `block`."""
    population: Population = block.population.get()
    parcel: Parcel = block.sent.get()
    received = {k: torch.from_numpy(parcel.apart.get(k, parcel.model)) for k in block.clients}
    refused = {
        client: reason for client in block.clients if (reason := _refusal(population, received[client]))
    }
    willing = tuple(client for client in block.clients if client not in refused)
    accuracies: list[float] = []
    reports: dict[int, Tensors] = {}
    kept: dict[int, Tensors] = {}

    def updates() -> Iterator[Update]:
        for client in willing:
            task = _local_task(population, parcel, received[client], client, block.seed, accuracies)
            with torch.no_grad():
                reports[client] = population.strategy.report(task.module.eval(), task.images)
            reply = population.strategy.train(task)
            kept[client] = reply.kept
            row = reply.delta if reply.summed is None else torch.cat([reply.delta, reply.summed])
            yield Update(client, len(task.images), row)

    if not willing:
        deltas = NOTHING
    elif block.keep_updates:
        deltas = torch.stack([update.delta for update in updates()])
    else:
        deltas = weighted_sum(updates(), block.samples)
    return Trained(deltas.numpy(), willing, refused, tuple(accuracies), reports, kept)


def _refusal(population: Population, received: Tensor) -> str | None:
    """Why a client that vets what it receives would not train this model, shape (P,)."""
    if not population.defences.vets:
        return None
    write_vector(population.model, received)
    return population.defences.on_receive(population.model, population.pool.get().shape)


def _local_task(
    population: Population, parcel: Parcel, sent: Tensor, client: int, seed: int, accuracies: list[float]
) -> LocalTask:
    """The client with its data and its defences; the accuracy of what it trains joins `accuracies`."""
    recipe = population.strategy.local(population.recipe)
    pool: Images = population.pool.get()
    images = pool[population.clients[client]]
    own_seed = derive(seed, "client", client)

    def fitted(step: Step = PLAIN) -> Tensor:
        defended = compose(step, population.defences.training())
        trained = fit(population.model, sent, images, recipe, own_seed, defended)
        if len(population.local_test):
            accuracies.append(accuracy(population.model, pool[population.local_test]))
        rng = torch_rng(seed, "client", client, "defence")
        return population.defences.on_update(trained - sent, population.layout, rng)

    write_vector(population.model, sent)
    kept = parcel.kept.get(client, {})
    return LocalTask(
        population.model, population.layout, sent, images, recipe, parcel.payload, kept, fitted, own_seed
    )
