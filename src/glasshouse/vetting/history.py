"""Signs in what changed since the models received before: training moves weights, crafting sets them.

The server averages what clients trained from the last model. So the next one resembles it, row by row, and
what moved most is what training moves most: in a client's own training, in the round before, or, with a
step of the same size for every weight as of Adam, in the largest tensors.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models.freezing import exchanged
from glasshouse.vetting.signs import Sign

TURNED = 0.2
"""A tensor, or a row, whose cosine with its predecessor is below this was replaced, not trained."""

JUMP = 10.0
"""A change this many times the largest earlier one is out of line."""

LEAST = 64
"""Smaller tensors turn around in honest training."""

WIDE, SOME = 16, 8
"""Shorter rows turn around in honest training, and so may fewer rows."""

CALM = 0.3
"""Rows are compared one by one where half of them changed by less than this, relative to their length."""

BEYOND, NOTICEABLE = 10.0, 0.1
"""A tensor that changed by this share of its length, and this many times what explains the others' changes.

Over the models that thresholds were chosen on (see docs/vetting.md) the factor reached 2.9; this is three
times as much, rounded.
"""

OWN_RECIPE = Recipe(epochs=1, batch_size=32, lr=0.01)
"""The client's own training that a round is compared with; its learning rate cancels."""


@dataclass(frozen=True)
class Moved:
    """How a tensor changed: relative to its length, and beyond what explains the changes of the others.

    `beyond` is a factor over the median tensor, by whichever explanation fits best.
    """

    name: str
    relative: float
    beyond: float


def history_signs(
    model: nn.Module, predecessors: Sequence[nn.Module], own: Images | None = None
) -> Iterator[Sign]:
    """Layers that the step from the last of `predecessors` (oldest first) to `model` replaced.

    With the client's `own` images the step is compared with its own training, too.
    """
    if not predecessors:
        return
    if not all(torch.isfinite(read_vector(earlier)).all() for earlier in predecessors):
        why = "an earlier model has NaN or infinite values, so that no change can be told from it"
        yield Sign("not-finite", "", why, alarming=True)
        return
    history = [_weights(network) for network in (*predecessors, model)]
    for name, received in history[-1].items():
        states = [state[name] for state in history]
        if not float(states[-2].norm()):
            continue
        cosine = float(torch.cosine_similarity(received.flatten(), states[-2].flatten(), dim=0, eps=1e-30))
        steps = [float((after - before).norm()) for before, after in pairwise(states)]
        relative = steps[-1] / float(states[-2].norm())
        turned = turned_rows(states[-2], received)
        if cosine < TURNED:
            why = (
                f"its weights are not those of the round before (cosine {cosine:.2f}): replaced, not trained"
            )
            yield Sign("replaced", name, why, alarming=True)
        elif relative > 1 and len(steps) > 1 and steps[-1] > JUMP * max(steps[:-1]):
            times = steps[-1] / max(*steps[:-1], 1e-30)
            why = f"it changed {times:.0f} times as much as in any earlier round"
            yield Sign("jump", name, why, alarming=True)
        elif turned >= SOME:
            why = f"{turned} of {len(received)} rows are not those of the round before, which most others are"
            yield Sign("replaced-rows", name, why, alarming=True)

    for change in moved(model, predecessors, own):
        if change.beyond > BEYOND and change.relative > NOTICEABLE:
            why = (
                f"it changed {change.beyond:.0f} times as much as it should beside the other layers, by "
                "the round before, by your own training or by equal steps for all weights"
            )
            yield Sign("out-of-line", change.name, why, alarming=True)


def turned_rows(before: Tensor, after: Tensor) -> int:
    """How many rows point elsewhere than before, in a tensor (n, ...) whose rows mostly stayed."""
    before, after = before.detach().flatten(1), after.detach().flatten(1)
    if before.shape[1] < WIDE:
        return 0
    lengths = before.norm(dim=1)
    live = lengths > 1e-3 * lengths.median()
    before, after = before[live], after[live]
    if not len(before) or float(((after - before).norm(dim=1) / lengths[live]).median()) > CALM:
        return 0
    cosines = torch.cosine_similarity(before, after, dim=1, eps=1e-30)
    return int((cosines < TURNED).sum())


def moved(model: nn.Module, predecessors: Sequence[nn.Module], own: Images | None) -> list[Moved]:
    """How each trained tensor changed since the last of `predecessors`, given the client's own images."""
    layout = Layout.of(model)
    states = [layout.named(read_vector(network).double()) for network in (*predecessors, model)]
    trained = exchanged(model)
    steps = [{name: after[name] - before[name] for name in trained} for before, after in pairwise(states)]
    last = {name: float(step.norm()) for name, step in steps[-1].items()}
    explained = [{name: math.sqrt(step.numel()) for name, step in steps[-1].items()}]
    if len(steps) > 1:
        explained.append({name: float(step.norm()) for name, step in steps[-2].items()})
    if own is not None:
        copy = deepcopy(predecessors[-1])
        start = read_vector(copy)
        change = layout.named((fit(copy, start, own, OWN_RECIPE, seed=0) - start).double())
        if all(torch.isfinite(part).all() for part in change.values()):
            explained.append({name: float(change[name].norm()) for name in trained})
    factors = [_beyond(last, lengths) for lengths in explained]
    return [
        Moved(
            name, last[name] / max(float(states[-2][name].norm()), 1e-30), min(each[name] for each in factors)
        )
        for name in trained
        if last[name]
    ]


def _beyond(steps: dict[str, float], explained: dict[str, float]) -> dict[str, float]:
    """Each step over its explanation, over the median of that quotient."""
    quotients = {
        name: step / explained[name] if explained[name] else math.inf for name, step in steps.items()
    }
    finite = sorted(each for each in quotients.values() if each and math.isfinite(each))
    middle = finite[len(finite) // 2] if finite else 1.0
    return {name: quotient / middle for name, quotient in quotients.items()}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.detach().double()
        for name, parameter in exchanged(model).items()
        if parameter.ndim >= 2 and parameter.numel() >= LEAST
    }
