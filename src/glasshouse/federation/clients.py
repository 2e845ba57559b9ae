"""The clients' side of a round: train, defend, send. Runs in the engine's workers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.federation.updates import Update, weighted_sum
from glasshouse.learning.evaluate import accuracy
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.learning.shared import Shared


@dataclass(frozen=True, eq=False)
class Devices:
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
class Block:
    """A few clients of one round, for one worker.

    `sent` holds the model, shape (P,), the models of clients that get one of their own, and a payload.
    """

    devices: Shared
    sent: Shared
    clients: tuple[int, ...]
    samples: int
    seed: int
    keep_updates: bool


@dataclass(frozen=True, eq=False)
class Trained:
    """What a block comes back with: each client's delta, or their weighted sum, and their test accuracies.

    Clients that refused the model are not among `clients`, but in `refused`, with their reason.
    """

    deltas: np.ndarray
    clients: tuple[int, ...]
    refused: dict[int, str]
    accuracies: tuple[float, ...]


def train_block(block: Block) -> Trained:
    """Train the clients of `block`."""
    devices: Devices = block.devices.get()
    array, apart, payload = block.sent.get()
    received = {client: torch.from_numpy(apart.get(client, array)) for client in block.clients}
    refused = {client: reason for client in block.clients if (reason := _refusal(devices, received[client]))}
    willing = tuple(client for client in block.clients if client not in refused)
    accuracies: list[float] = []
    updates = _updates(devices, received, willing, payload, block.seed, accuracies)
    if not willing:
        deltas = torch.empty(0, len(array)) if block.keep_updates else torch.zeros(len(array))
    elif block.keep_updates:
        deltas = torch.stack([update.delta for update in updates])
    else:
        deltas = weighted_sum(updates, block.samples)
    return Trained(deltas.numpy(), willing, refused, tuple(accuracies))


def _refusal(devices: Devices, received: Tensor) -> str | None:
    """Why a client that vets what it receives would not train this model, shape (P,)."""
    if not devices.defences.vets:
        return None
    write_vector(devices.model, received)
    return devices.defences.on_receive(devices.model, devices.pool.get().shape)


def _updates(
    devices: Devices,
    received: dict[int, Tensor],
    clients: Iterable[int],
    payload: Any,
    seed: int,
    accuracies: list[float],
) -> Iterator[Update]:
    recipe = devices.strategy.local(devices.recipe)
    objective = devices.strategy.objective(payload)
    pool: Images = devices.pool.get()
    for client in clients:
        sent = received[client]
        images = pool[devices.clients[client]]
        trained = fit(
            devices.model,
            sent,
            images,
            recipe,
            derive(seed, "client", client),
            objective=objective,
            on_batch=devices.defences.batch_transform(),
            harden=devices.defences.hardening(),
        )
        if len(devices.local_test):
            accuracies.append(accuracy(devices.model, pool[devices.local_test]))
        rng = torch_rng(seed, "client", client, "defence")
        delta = devices.defences.on_update(trained - sent, devices.layout, rng)
        yield Update(client, len(images), delta)
