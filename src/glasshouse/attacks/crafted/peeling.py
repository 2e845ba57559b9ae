"""Resolving collisions: samples found alone in a bin of one direction are taken out of their other bins.

This is how sparse-graph codes are decoded (Goodrich and Mitzenmacher's invertible Bloom lookup tables): with
three directions it empties nearly all bins while there are fewer samples than about 0.8 times the rows, and
stalls soon after. Above that one direction finds more.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.attacks.crafted.leakage import bin_sums, quotients
from glasshouse.attacks.crafted.sorting import Sorter

LOAD = 0.78
"""Samples per row up to which three directions find more than one."""

SWEEPS = 60

Alone = Callable[[Tensor, Tensor], Tensor]
"""Whether the samples of some bins look alone there, from their quotients (n, d) and their weights (n,)."""


@dataclass(frozen=True, eq=False)
class Peeled:
    """Latents found alone, (n, d), and what the bins of the first direction still hold, (m, d)."""

    alone: Tensor
    mixed: Tensor


def suggested_directions(samples: int, rows: int) -> int:
    """How many directions to share the rows among."""
    return 3 if samples <= LOAD * rows else 1


def peel(weight: Tensor, bias: Tensor, sorter: Sorter, empty: float, alone: Alone) -> Peeled:
    """Latents from the gradients of the first layer's weights, (k, d), and biases, (k,).

    A bin whose weight is within `empty` of zero holds nobody.
    """
    parts = [bin_sums(weight[rows].double(), bias[rows].double()) for rows in sorter.rows]
    found: list[Tensor] = []
    idle = 0
    for sweep in range(SWEEPS):
        place = sweep % len(parts)
        lone = _lone(*parts[place], sorter, place, empty, alone)
        idle = 0 if len(lone) else idle + 1
        if idle == len(parts):
            break
        if not len(lone):
            continue
        sums, weights = (part[lone] for part in parts[place])
        latents = quotients(sums, weights)
        found.append(latents)
        bins = sorter.bins(latents)
        for other, (all_sums, all_weights) in enumerate(parts):
            target = lone if other == place else bins[:, other]
            known = target >= 0
            all_sums.index_add_(0, target[known], sums[known], alpha=-1)
            all_weights.index_add_(0, target[known], weights[known], alpha=-1)
    sums, weights = parts[0]
    left = (weights.abs() > empty).nonzero().flatten()
    left = left[weights[left].abs().argsort(descending=True)]
    mixed = quotients(sums[left], weights[left])
    return Peeled(torch.cat([*found, mixed[:0]]).float(), mixed.float())


def _lone(sums: Tensor, weights: Tensor, sorter: Sorter, place: int, empty: float, alone: Alone) -> Tensor:
    """The bins of direction `place` that hold a single sample: one that looks alone and belongs there."""
    occupied = (weights.abs() > empty).nonzero().flatten()
    if not len(occupied):
        return occupied
    latents = quotients(sums[occupied], weights[occupied])
    feature = latents @ sorter.directions[place]
    cut = sorter.cuts[place]
    widths = cut[1:].diff().median() if len(cut) > 2 else cut.diff().abs().max()
    upper = torch.cat([cut[1:], torch.full((1,), torch.inf, dtype=cut.dtype)])
    inside = (feature > cut[occupied] - widths) & (feature < upper[occupied] + widths)
    return occupied[inside & alone(latents, weights[occupied])]
