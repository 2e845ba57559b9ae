"""Signs of trap weights (Boenisch et al., When the curious abandon honesty, 2023): neurons that fire rarely.

A row whose positive entries are a little smaller than its negative ones is below zero for nearly every image.
The few that it fires for are all that its gradient sums, and one that is alone there lies open.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.vetting.probing import Probe
from glasshouse.vetting.signs import Sign, breadth, weighted_layers

WINDOW = 0.2
"""Sums of rows this near each other, in units of the row's length, are alike."""

DENSE = 0.08
"""The share of rows that has alike sums by chance: a normal density of 0.4 at its peak, times the window."""

ENTRIES = 16
"""Rows that rest on fewer entries have alike sums by chance."""

SOME = 8
"""The fewest rows that count."""

RARE = 1 / 16
"""A neuron that fires for at most this share of the images fires rarely."""

MOSTLY = 0.6
"""Where so many of the neurons that fire at all do so rarely, it is by design.

Over the models that thresholds were chosen on (see docs/vetting.md) at most 0.23 did; this is half way to
all.
"""


def trap_signs(model: nn.Module) -> Iterator[Sign]:
    """Layers whose rows are balanced: their entries add up to nearly the same, as those of trap weights do.

    Entries that are drawn, and trained, one by one add up to sums that spread by the length of the row or
    more. A row of pairs, where each positive entry is a fixed part of a negative one, has no such spread.
    """
    for layer in weighted_layers(model):
        rows = layer.weight[breadth(layer.weight) >= ENTRIES].double()
        alike = alike_sums(rows)
        chance = DENSE * len(rows)
        if alike >= SOME + chance + 6 * chance**0.5:
            why = (
                f"the entries of {alike} of {len(layer.weight)} rows add up to nearly the same, for their "
                "length; those of trained rows do not, those of trap weights do: pairs of opposite signs "
                "that keep each neuron just below its threshold"
            )
            yield Sign("balanced-rows", layer.name, why, alarming=True)


def alike_sums(rows: Tensor) -> int:
    """How many of the rows, (n, d), have a sum over their length within one window."""
    if not len(rows):
        return 0
    sums = (rows.sum(1) / rows.norm(dim=1)).sort().values
    above = torch.searchsorted(sums, sums + WINDOW)
    return int((above - torch.arange(len(sums))).max())


def firing_signs(seen: Probe) -> Iterator[Sign]:
    """Layers whose neurons mostly fire for single images of the client."""
    for layer in firing(seen):
        if layer.rows >= SOME and layer.rare > MOSTLY:
            why = (
                f"{layer.rare:.0%} of its neurons that fire at all do so for at most 1 in {1 / RARE:.0f} of "
                f"your images, and {layer.alone:.0%} of these are alone in the gradient of one"
            )
            yield Sign("rare-neurons", layer.name, why, alarming=True)


@dataclass(frozen=True)
class Firing:
    """How rarely the neurons of one linear layer fire, and how many images of the batch one fires for alone.

    `rows` is how many fire at all, `rare` a share of these; `alone` is a share of the images.
    """

    name: str
    rows: int
    rare: float
    alone: float


def firing(seen: Probe) -> list[Firing]:
    """For each linear layer that takes one vector for each image, but the last, which no neuron follows."""
    found = []
    for name, signals in seen.signals.items():
        if signals.ndim != 2 or name == seen.head:
            continue
        fires = signals != 0
        often = fires.sum(0)
        ever = int((often > 0).sum())
        rare = (often > 0) & (often <= max(1, RARE * len(fires)))
        single = fires[:, often == 1].any(1)
        found.append(Firing(name, ever, int(rare.sum()) / max(ever, 1), float(single.float().mean())))
    return found
