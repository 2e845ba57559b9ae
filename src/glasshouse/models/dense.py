"""Networks of linear layers only."""

import math

from torch import nn

from glasshouse.models.shapes import Shape


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Two hidden layers of 200: the "2NN" of McMahan et al. (2017), 199,210 parameters on MNIST."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, classes),
    )
