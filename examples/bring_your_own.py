"""Audit a model and data of your own.

From Python, with the last three lines of this file: `python bring_your_own.py`. From the command line:

    cd examples
    glasshouse audit --data bring_your_own:images --model bring_your_own:Network

`images` and `Network` are all that Glasshouse needs to know; replace them with yours.
"""

import numpy as np
import torch
from torch import nn


def images() -> tuple[np.ndarray, np.ndarray]:
    """6,000 grey pictures of a bright bar, standing, lying or slanting, in noise: (N, 12, 12) and (N,)."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 6000)
    x = rng.uniform(0.0, 0.4, (6000, 12, 12))
    row, column = np.indices((12, 12))
    for picture, label in zip(x, y):
        distance = (column, row, (row + column) / 2)[label] - rng.integers(3, 9)
        picture[np.abs(distance) < 1] += 0.6
    return x, y


class Network(nn.Module):
    """A small convolutional network for whatever `images` returns."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.features = nn.Conv2d(channels, 8, kernel_size=3, padding=1)
        self.head = nn.Linear(8 * (height // 2) * (width // 2), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.max_pool2d(self.features(x).relu(), 2).flatten(1))


if __name__ == "__main__":
    from glasshouse import Setting, audit

    results = audit(Setting(data={"name": "bring_your_own:images"}, model={"name": "bring_your_own:Network"}))
    print(results.report)
