"""A small network for digits of 8x8 pixels."""

from torch import nn


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(64, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )
