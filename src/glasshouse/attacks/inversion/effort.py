"""How many steps of a search some seconds pay for: by the size of the work, not by the clock.

The number is the same on every machine, so that results are too. A step differentiates a gradient by the
pixels, which on one core of 2020 takes about

    passes * LAYER * layers + images * (operations of one image's forward pass) / SPEED   seconds,

where several passes simulate several local steps, and an image counts once for each pass that it is in.
"""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

LAYER = 4e-4
"""Seconds that a step spends on a layer however small the images, with the search's own work."""

SPEED = 5e9
"""Operations of the forward pass that a step gets through in a second, with both its backward passes."""

FEWEST, MOST = 25, 4800
"""No search takes fewer steps, or it would stay where it began, and none more than are published."""


def affordable_steps(
    network: nn.Module, shape: tuple[int, int, int], images: int, seconds: float, *, passes: int = 1
) -> int:
    """How many steps on `images` images of `shape`, one after the other, about `seconds` pay for."""
    layers = sum(not list(module.children()) for module in network.modules())
    cost = passes * LAYER * layers + images * operations(network, shape) / SPEED
    return int(min(MOST, max(FEWEST, seconds / cost)))


def operations(network: nn.Module, shape: tuple[int, int, int]) -> int:
    """The floating-point operations of one image's forward pass; the network is left as it was.

    >>> operations(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), (3, 2, 2))  # a product and a sum for each
    120
    """
    training = network.training
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.eval()(torch.zeros(1, *shape))
    network.train(training)
    return int(counter.get_total_flops())
