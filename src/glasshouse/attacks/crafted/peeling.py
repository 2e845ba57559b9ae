"""Resolving collisions: samples found alone in a bin of one direction are taken out of their other bins.

This is how sparse-graph codes are decoded (Goodrich and Mitzenmacher's invertible Bloom lookup tables): with
three directions it empties nearly all bins while there are fewer samples than about 0.8 times the rows, and
stalls soon after. Above that one direction finds more.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.attacks.crafted.leakage import quotients
from glasshouse.attacks.crafted.sorting import Sorter

LOAD = 0.78
"""Samples per row up to which three directions find more than one."""

SWEEPS = 60

STRAYS = 6.0
"""How many standard deviations of noise may carry a sample across a threshold."""

SAME = 0.02
"""Latents that differ by less than this share of their length are one sample's."""

Alone = Callable[[Tensor, Tensor], Tensor]
"""Whether the samples of some bins look alone there, from their quotients (n, d) and their weights (n,)."""


def suggested_rounds(samples: int, rows: int, steady: bool) -> int:
    """How many rounds give enough rows to find nearly all samples, up to 16.

    With `steady` weights, the same in each round, peeling helps; without it one direction must do.
    """
    return 1 if samples <= LOAD * rows and steady else min(16, -(-2 * samples // rows))


def suggested_directions(samples: int, rows: int) -> int:
    """How many directions to share the rows among."""
    return 3 if samples <= LOAD * rows else 1


@dataclass(frozen=True, eq=False)
class Criteria:
    """How bins are judged: how `alone` samples look, their `mean`, shape (d,), and the `noise` of entries.

    A bin whose weight is within `empty` of zero is empty.
    """

    alone: Alone
    mean: Tensor
    noise: float
    empty: float


def peel(sums: Tensor, weights: Tensor, sorter: Sorter, criteria: Criteria) -> Tensor:
    """Latents, shape (n, d), from what each bin holds: weighted latents, (K, d), and weights, (K,).

    Those found alone come first, then what the bins of the first direction still hold. Writes into both.
    """
    parts = [(sums[rows], weights[rows]) for rows in sorter.rows]
    alone: list[Tensor] = []
    idle = 0
    for sweep in range(SWEEPS):
        place = sweep % len(parts)
        lone = _lone(*parts[place], sorter, place, criteria)
        idle = 0 if len(lone) else idle + 1
        if idle == len(parts):
            break
        if not len(lone):
            continue
        lone_sums, lone_weights = (part[lone] for part in parts[place])
        latents = quotients(lone_sums, lone_weights)
        alone.append(latents)
        bins = sorter.bins(latents)
        margin = STRAYS * criteria.noise / lone_weights.abs()
        centred = lone_weights[:, None] * (latents - criteria.mean)
        for other, (all_sums, all_weights) in enumerate(parts):
            target = lone
            if other != place:
                feature = latents @ sorter.directions[other]
                rivals = _rivals(bins[:, other], feature, sorter.cuts[other], margin)
                target = _likelier(bins[:, other], rivals, parts[other], centred, criteria.mean)
            inside = target >= 0
            all_sums.index_add_(0, target[inside], lone_sums[inside], alpha=-1)
            all_weights.index_add_(0, target[inside], lone_weights[inside], alpha=-1)
    sums, weights = parts[0]
    left = (weights.abs() > criteria.empty).nonzero().flatten()
    left = left[weights[left].abs().argsort(descending=True)]
    mixed = quotients(sums[left], weights[left])
    return torch.cat([_distinct(torch.cat([*alone, mixed[:0]]).float()), mixed.float()])


def _distinct(latents: Tensor) -> Tensor:
    """The latents, each once: a sample that was taken out of a wrong bin is found again."""
    again = torch.cdist(latents, latents) < SAME * latents.norm(dim=1)
    return latents[~again.tril(-1).any(1)]


def _rivals(bins: Tensor, feature: Tensor, cut: Tensor, margin: Tensor) -> Tensor:
    """The neighbouring bin where noise may have carried a sample across a threshold, else its own."""
    places = bins.clamp(min=0)
    above = (places + 1 < len(cut)) & (cut[(places + 1).clamp(max=len(cut) - 1)] - feature < margin)
    below = (places > 0) & (feature - cut[places] < margin)
    return torch.where(above, places + 1, torch.where(below, places - 1, bins))


def _likelier(
    bins: Tensor, rivals: Tensor, part: tuple[Tensor, Tensor], centred: Tensor, mean: Tensor
) -> Tensor:
    """Of two bins the one that holds more of the sample: centred latents are nearly orthogonal."""
    unsure = (bins != rivals).nonzero().flatten()
    sums, weights = part

    def held(where: Tensor) -> Tensor:
        return ((sums[where] - weights[where, None] * mean) * centred[unsure]).sum(1)

    chosen = bins.clone()
    if len(unsure):
        better = held(rivals[unsure]) > held(bins[unsure].clamp(min=0))
        chosen[unsure] = torch.where(better, rivals[unsure], bins[unsure])
    return chosen


def _lone(sums: Tensor, weights: Tensor, sorter: Sorter, place: int, criteria: Criteria) -> Tensor:
    """The bins of direction `place` that hold a single sample: one that looks alone and belongs there."""
    occupied = (weights.abs() > criteria.empty).nonzero().flatten()
    if not len(occupied):
        return occupied
    latents = quotients(sums[occupied], weights[occupied])
    feature = latents @ sorter.directions[place]
    cut = sorter.cuts[place]
    widths = cut[1:].diff().median() if len(cut) > 2 else cut.diff().abs().max()
    upper = torch.cat([cut[1:], torch.full((1,), torch.inf, dtype=cut.dtype)])
    inside = (feature > cut[occupied] - widths) & (feature < upper[occupied] + widths)
    return occupied[inside & criteria.alone(latents, weights[occupied])]
