"""The layers of a model as matrices, one row for each neuron or filter."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SKETCH = 256
"""Rows longer than this are compared by a random sketch of this length."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear or convolutional layer: weights (rows, inputs), a row for each output, and biases (rows,)."""

    name: str
    module: nn.Module
    weight: Tensor
    bias: Tensor | None


def weighted_layers(model: nn.Module) -> Iterator[Layer]:
    """The linear and convolutional layers, in the order in which they were defined."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            bias = None if module.bias is None else module.bias.detach()
            yield Layer(name, module, module.weight.detach().flatten(1), bias)


def directions(rows: Tensor) -> Tensor:
    """Rows (n, d) as unit vectors, sketched where they are long; zero rows stay zero.

    A count sketch adds up entries under random signs: proportional rows stay so, others do not become so.
    """
    scaled = _scaled(rows)
    width = rows.shape[1]
    if width > SKETCH:
        rng = torch.Generator().manual_seed(width)
        places = torch.randint(SKETCH, (width,), generator=rng)
        signs = torch.randint(2, (width,), generator=rng) * 2.0 - 1
        scaled = torch.zeros(len(rows), SKETCH).index_add_(1, places, scaled * signs)
    return nn.functional.normalize(scaled, dim=1)


def breadth(rows: Tensor) -> Tensor:
    """How many entries of each row carry its weight: (sum w^2)^2 / sum w^4, from 1 to d; 0 for a zero row."""
    squares = _scaled(rows).square()
    total = squares.sum(1)
    return total.square() / squares.square().sum(1).clamp_min(torch.finfo(torch.float32).tiny)


def _scaled(rows: Tensor) -> Tensor:
    """Rows whose largest entry is 1: the square of 1e-30 is no longer a float."""
    largest = rows.float().abs().amax(1, keepdim=True)
    return rows.float() / largest.clamp_min(torch.finfo(torch.float32).tiny)
