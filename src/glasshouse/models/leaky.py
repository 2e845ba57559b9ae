"""The convolutional network that R-GAP was shown on."""

from itertools import pairwise

from torch import nn

from glasshouse.models.shapes import Shape

WIDTHS = (12, 36, 36, 36, 64, 128)
STRIDES = (2, 2, 1, 1, 2, 1)


def cnn6(shape: Shape, classes: int) -> nn.Module:
    """CNN6 of the R-GAP paper: six convolutions (12 to 128) with LeakyReLU and one linear layer, no biases.

    Strides 2, 2, 1, 1, 2, 1; the first kernel is 4x4 with padding 2, the others are 3x3 with padding 1; slope
    0.2. Every layer has at least as many equations, from its outputs and its weights' gradient together, as
    inputs. The paper's head has one output for two classes; this one has an output for each class.
    """
    channels, height, width = shape
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise((channels, *WIDTHS))):
        kernel, padding = (4, 2) if place == 0 else (3, 1)
        layers.append(nn.Conv2d(inputs, outputs, kernel, STRIDES[place], padding, bias=False))
        layers.append(nn.LeakyReLU(0.2))
        height, width = ((side + 2 * padding - kernel) // STRIDES[place] + 1 for side in (height, width))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(WIDTHS[-1] * height * width, classes, bias=False))
