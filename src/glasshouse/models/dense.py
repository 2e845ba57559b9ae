"""Networks of linear layers only, and the linear layers at the end of others."""

import math
from itertools import pairwise

from torch import nn

from glasshouse.models.shapes import Shape


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Two hidden layers of 200: the "2NN" of McMahan et al. (2017), 199,210 parameters on MNIST."""
    return nn.Sequential(nn.Flatten(), *perceptron(math.prod(shape), (200, 200), classes))


def perceptron(inputs: int, hidden: tuple[int, ...], classes: int) -> nn.Sequential:
    """Linear layers from `inputs` through the `hidden` widths to the logits, with ReLU between."""
    layers: list[nn.Module] = []
    for entering, leaving in pairwise((inputs, *hidden)):
        layers += [nn.Linear(entering, leaving), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], classes))
