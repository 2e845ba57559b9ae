"""The clients' side of a round: train, defend, send. Runs in the engine's workers."""

from collections.abc import Iterator
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
from glasshouse.learning.layout import Layout
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
    """A few clients of one round, for one worker; `sent` holds the model, shape (P,), and a payload."""

    devices: Shared
    sent: Shared
    clients: tuple[int, ...]
    samples: int
    seed: int
    keep_updates: bool


@dataclass(frozen=True, eq=False)
class Trained:
    """What a block comes back with: each client's delta, or their weighted sum, and their test accuracies."""

    deltas: np.ndarray
    accuracies: tuple[float, ...]


def train_block(block: Block) -> Trained:
    """Train the clients of `block`."""
    devices: Devices = block.devices.get()
    array, payload = block.sent.get()
    sent = torch.from_numpy(array)
    accuracies: list[float] = []
    updates = _updates(devices, sent, payload, block, accuracies)
    if block.keep_updates:
        deltas = torch.stack([update.delta for update in updates])
    else:
        deltas = weighted_sum(updates, block.samples)
    return Trained(deltas.numpy(), tuple(accuracies))


def _updates(
    devices: Devices, sent: Tensor, payload: Any, block: Block, accuracies: list[float]
) -> Iterator[Update]:
    recipe = devices.strategy.local(devices.recipe)
    objective = devices.strategy.objective(payload)
    pool: Images = devices.pool.get()
    for client in block.clients:
        images = pool[devices.clients[client]]
        trained = fit(
            devices.model,
            sent,
            images,
            recipe,
            derive(block.seed, "client", client),
            objective=objective,
            on_batch=devices.defences.batch_transform(),
        )
        if len(devices.local_test):
            accuracies.append(accuracy(devices.model, pool[devices.local_test]))
        rng = torch_rng(block.seed, "client", client, "defence")
        delta = devices.defences.on_update(trained - sent, devices.layout, rng)
        yield Update(client, len(images), delta)
