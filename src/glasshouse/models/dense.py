"""Networks of linear layers only, and the linear layers at the end of others."""

import math
from itertools import pairwise

from torch import nn

from glasshouse.errors import BadInput, quoted
from glasshouse.models.shapes import Shape
from glasshouse.options import check_whole

WIDEST, DEEPEST = 100_000, 100
"""Neurons of a hidden layer, and hidden layers, at most."""


def mlp(shape: Shape, classes: int, *, hidden: tuple[int, ...] = (200, 200)) -> nn.Module:
    """Two hidden layers of 200: the "2NN" of McMahan et al. (2017), 199,210 parameters on MNIST.

    The widths of its `hidden` layers may be others, and more or fewer: one at least.
    """
    if not isinstance(hidden, tuple | list) or not 0 < len(hidden) <= DEEPEST:
        raise BadInput(
            f"mlp hidden = {quoted(hidden)} is out of range; "
            f"it must be one to {DEEPEST} widths, like (200, 200)"
        )
    for width in hidden:
        check_whole("mlp", "hidden", width, 1, WIDEST)
    return nn.Sequential(nn.Flatten(), *perceptron(math.prod(shape), tuple(hidden), classes))


def perceptron(inputs: int, hidden: tuple[int, ...], classes: int) -> nn.Sequential:
    """Linear layers from `inputs` through the `hidden` widths to the logits, with ReLU between."""
    layers: list[nn.Module] = []
    for entering, leaving in pairwise((inputs, *hidden)):
        layers += [nn.Linear(entering, leaving), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], classes))
