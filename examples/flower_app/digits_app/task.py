"""The network, the data of a client, and how a client trains."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

SHAPE, CLASSES = (1, 8, 8), 10
TEST = 597
"""As many images belong to no client."""


class Net(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def load_data(partition: int, partitions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The images, shape (N, 1, 8, 8) in [0, 1], and labels of one of so many clients."""
    x, y = shuffled()
    chosen = np.array_split(np.arange(TEST, len(y)), partitions)[partition]
    return x[chosen], y[chosen]


def load_test() -> tuple[torch.Tensor, torch.Tensor]:
    """The images and labels that no client holds."""
    x, y = shuffled()
    return x[:TEST], y[:TEST]


def shuffled() -> tuple[torch.Tensor, torch.Tensor]:
    """All images and labels, in an order that is the same everywhere."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.tensor(pixels[order] / 16, dtype=torch.float32).view(-1, *SHAPE)
    return x, torch.tensor(labels[order])


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, batch: int, lr: float) -> float:
    """Train by plain SGD; the mean loss of the last epoch."""
    optimiser = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        losses = []
        for chosen in torch.randperm(len(y)).split(batch):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(x[chosen]), y[chosen])
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The share of images that the network reads."""
    return (net.eval()(x).argmax(1) == y).float().mean().item()
