"""What every contestant is given: a shape of federation, its data, its network, and ordinary local training.

Imports nothing but torch and NumPy, so that every contestant's environment can load it.
"""

import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A federation: who holds how much, who takes part, how they train."""

    name: str
    data: str
    network: str
    clients: int
    samples: int
    participants: int
    epochs: int
    batch_size: int
    lr: float


@dataclass(frozen=True, eq=False)
class Task:
    """A shape, the images of all clients, those of client k from k * samples on, and the network to train."""

    shape: Shape
    x: Tensor
    y: Tensor
    network: nn.Module

    def client(self, k: int) -> tuple[Tensor, Tensor]:
        """The images, float32 NCHW, and labels of client `k`."""
        held = slice(k * self.shape.samples, (k + 1) * self.shape.samples)
        return self.x[held], self.y[held]


def write_task(folder: Path, shape: Shape, x: np.ndarray, y: np.ndarray, network: nn.Module) -> None:
    """Lay a task down in `folder`."""
    (folder / "shape.json").write_text(json.dumps(dataclasses.asdict(shape)))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    torch.save(network, folder / "network.pt")


@cache
def read_task(folder: Path) -> Task:
    """The task in `folder`; a process reads it once, and processes share the memory of its images."""
    return Task(
        Shape(**json.loads((folder / "shape.json").read_text())),
        torch.from_numpy(np.load(folder / "x.npy", mmap_mode="c")),
        torch.from_numpy(np.load(folder / "y.npy", mmap_mode="c")),
        torch.load(folder / "network.pt", weights_only=False),
    )


def train(network: nn.Module, x: Tensor, y: Tensor, shape: Shape) -> None:
    """A client's local epochs, as PyTorch tutorials write them."""
    optimiser = torch.optim.SGD(network.parameters(), lr=shape.lr)
    network.train()
    for _ in range(shape.epochs):
        for batch in torch.randperm(len(x)).split(shape.batch_size):
            optimiser.zero_grad()
            loss = F.cross_entropy(network(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
