"""Signs in how a model differs from the ones received before it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from glasshouse.vetting.signs import Sign

TURNED = 0.2
"""A weight tensor whose cosine with its predecessor is below this was replaced, not trained."""

JUMP = 10.0
"""A change this many times the largest earlier one is out of line."""

LEAST = 64
"""Smaller tensors turn around in honest training."""


def history_signs(model: nn.Module, predecessors: Sequence[nn.Module]) -> Iterator[Sign]:
    """Layers that the step from the last of `predecessors` (oldest first) to `model` replaced.

    Averaging clients that start from a model gives one that resembles it; a server that crafts does not.
    """
    history = [_weights(network) for network in (*predecessors, model)]
    if len(history) < 2:
        return
    for name, received in history[-1].items():
        states = [state[name] for state in history]
        if not float(states[-2].norm()):
            continue
        cosine = float(torch.cosine_similarity(received.flatten(), states[-2].flatten(), dim=0, eps=1e-30))
        steps = [float((after - before).norm()) for before, after in pairwise(states)]
        relative = steps[-1] / float(states[-2].norm())
        if cosine < TURNED:
            why = (
                f"its weights are not those of the round before (cosine {cosine:.2f}): replaced, not trained"
            )
            yield Sign("replaced", name, why, alarming=True)
        elif relative > 1 and len(steps) > 1 and steps[-1] > JUMP * max(steps[:-1]):
            times = steps[-1] / max(*steps[:-1], 1e-30)
            why = f"it changed {times:.0f} times as much as in any earlier round"
            yield Sign("jump", name, why, alarming=True)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.detach().double()
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and parameter.numel() >= LEAST
    }
