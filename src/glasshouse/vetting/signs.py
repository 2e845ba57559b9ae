"""Signs in the weights themselves: rows that repeat, biases that climb, columns that agree, copied pixels.

Honest training gives every neuron another direction. A layer crafted for linear leakage has one direction
(or a few) in many rows, each with another bias.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy import special
from torch import Tensor, nn

PARALLEL = 0.95
"""Rows with at least this cosine, up to sign, count as one direction: noise of 20% stays above it."""

GROUP = 8
"""The fewest parallel rows that count."""

BROAD = 2.0
"""Rows that rest on fewer entries than this (pruned ones do) are parallel by chance."""

SKETCH = 256
"""Rows longer than this are compared by a random sketch of this length."""


@dataclass(frozen=True)
class Sign:
    """Something odd about one layer (or the whole model: `layer` is empty), in plain words.

    An alarming sign is enough to call the model crafted; the others are worth knowing beside it.
    """

    name: str
    layer: str
    why: str
    alarming: bool

    def __str__(self) -> str:
        """One line: name, layer and reason."""
        place = f" in {self.layer}" if self.layer else ""
        return f"{self.name}{place}: {self.why}"


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear or convolutional layer: weights (rows, inputs), a row for each output, and biases (rows,)."""

    name: str
    module: nn.Module
    weight: Tensor
    bias: Tensor | None


def weight_signs(model: nn.Module) -> Iterator[Sign]:
    """All signs that need nothing but the weights."""
    layers = list(weighted_layers(model))
    for layer in layers:
        group = parallel_rows(layer.weight)
        if len(group):
            yield row_sign(layer, group)
            yield from (
                equal_columns(other, layer, group) for other in layers if _follows(other, layer, group)
            )
        yield from copied_pixels(layer)


def parallel_rows(rows: Tensor) -> Tensor:
    """Positions of the largest group of rows, of (n, d), with one direction up to sign; empty if small.

    A group must be larger than the rows' number of dimensions explains: random rows with few entries are
    often parallel.
    """
    wide = breadth(rows)
    candidates = (wide >= BROAD).nonzero()[:, 0]
    if len(candidates) < GROUP:
        return candidates[:0]
    units = directions(rows[candidates])
    near = (units @ units.T).abs() > PARALLEL
    counts = near.sum(1)
    centre = int(counts.argmax())
    members = candidates[near[centre]]
    # In r dimensions a random direction lies this close to another with the probability of a beta tail.
    chance = special.betainc((float(wide[members].median()) - 1) / 2, 0.5, 1 - PARALLEL**2)
    return members if len(members) >= GROUP + 4 * len(candidates) * chance else members[:0]


def row_sign(layer: Layer, group: Tensor) -> Sign:
    """What a group of parallel rows means: a staircase where their thresholds differ."""
    share = f"{len(group)} of {len(layer.weight)} rows have the same direction"
    steps = 0 if layer.bias is None else _distinct(_thresholds(layer.weight[group], layer.bias[group]))
    if steps < GROUP:
        why = f"{share}, but not different biases: they see the same and tell no samples apart"
        return Sign("constant-block", layer.name, why, alarming=False)
    why = (
        f"{share} and {steps} different thresholds: they sort samples by one quantity into bins, and the "
        "gradients of neighbouring rows differ by the samples of one bin"
    )
    return Sign("staircase", layer.name, why, alarming=True)


def equal_columns(layer: Layer, before: Layer, group: Tensor) -> Sign:
    """That the layer after a staircase treats its rows alike, which makes their gradients comparable."""
    why = f"it weighs the {len(group)} repeated rows of {before.name} alike, so that their gradients compare"
    return Sign("equal-columns", layer.name, why, alarming=False)


def copied_pixels(layer: Layer) -> Iterator[Sign]:
    """A convolution whose live filters copy one input value each: a slot that carries images on unchanged."""
    if isinstance(layer.module, nn.Linear):
        return
    entries = layer.weight.count_nonzero(1)
    live = layer.weight[entries > 0]
    if len(live) and int(entries.max()) == 1 and _distinct(live[live != 0]) == 1:
        silent = len(entries) - len(live)
        why = f"{len(live)} filters copy a single input value and {silent} are zero: images pass unchanged"
        yield Sign("identity-convolution", layer.name, why, alarming=False)


def _follows(layer: Layer, before: Layer, group: Tensor) -> bool:
    """Whether `layer` takes the outputs of `before` and has one direction for the columns of `group`."""
    if layer is before or layer.weight.shape[1] != len(before.weight):
        return False
    units = directions(layer.weight[:, group].T)
    return bool(((units @ units.T).abs() > PARALLEL).float().mean() > 0.5)


def _thresholds(rows: Tensor, biases: Tensor) -> Tensor:
    """Where each row's neuron switches on, along the rows' common direction."""
    largest = rows.abs().amax(1)
    lengths = largest * (rows / largest[:, None]).norm(dim=1)
    signs = (directions(rows) @ directions(rows)[0]).sign()
    thresholds: Tensor = -biases.double() / lengths.double() * signs
    return thresholds


def _distinct(values: Tensor) -> int:
    """How many values differ by more than rounding."""
    ordered = values.double().sort().values
    step = 1e-6 * float(ordered.abs().max())
    return 1 + int((ordered.diff() > step).sum())


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
