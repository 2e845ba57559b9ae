"""Plain convolutional networks: LeNet, and those of the batch-robustness and the ATS papers.

Where a paper pools after ReLU these pool before it: both are monotone, so the function is the same, on fewer
pixels. Convolutions are unpadded as printed, but images with a side under 16 are padded to keep their size.
"""

from itertools import pairwise

from torch import nn

from glasshouse.models.dense import perceptron
from glasshouse.models.shapes import LENET_SIDE, Shape, check_side

UNPADDED_SIDE = 16
"""The smallest side that `lenet` and `stdcnn` can take without padding."""


def lenet(shape: Shape, classes: int) -> nn.Module:
    """LeNet: two 5x5 convolutions (10, 20) with pooling, then 50 neurons; 21,840 parameters on MNIST.

    Images with a side under 16 (the 8x8 digits) are padded by 2 before each convolution.
    """
    check_side("lenet", shape, LENET_SIDE)
    padding, margin = (2, 0) if _small(shape) else (0, 4)
    height, width = (((side - margin) // 2 - margin) // 2 for side in shape[1:])
    layers = convolutions((shape[0], 10, 20), kernel=5, padding=padding, pooled=(1, 2))
    return nn.Sequential(*layers, nn.Flatten(), *perceptron(20 * height * width, (50,), classes))


def lenet_sigmoid(shape: Shape, classes: int) -> nn.Module:
    """LeNet of the DLG paper: three 5x5 convolutions of 12 with sigmoids, weights drawn from U(-0.5, 0.5).

    The first two halve the sides. It is smooth, so that second derivatives lead to the images.
    """
    channels, height, width = shape
    layers: list[nn.Module] = []
    for inputs, stride in ((channels, 2), (12, 2), (12, 1)):
        layers += [nn.Conv2d(inputs, 12, 5, stride=stride, padding=2), nn.Sigmoid()]
    pixels = -(-height // 4) * -(-width // 4)
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * pixels, classes))
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return network


def m1(shape: Shape, classes: int) -> nn.Module:
    """M1 of the batch-robustness paper: two 5x5 convolutions of 20, no pooling, then 500 neurons.

    Images with a side under 16 are padded by 2 before each convolution.
    """
    padding, margin = (2, 0) if _small(shape) else (0, 8)
    height, width = (side - margin for side in shape[1:])
    layers = convolutions((shape[0], 20, 20), kernel=5, padding=padding)
    return nn.Sequential(*layers, nn.Flatten(), *perceptron(20 * height * width, (500,), classes))


def stdcnn(shape: Shape, classes: int) -> nn.Module:
    """StdCNN of the batch-robustness paper: four 3x3 convolutions (10, 10, 20, 20), 50 neurons, dropout.

    Images with a side under 16 are padded by 1 before each convolution.
    """
    check_side("stdcnn", shape, 4)
    padding, margin = (1, 0) if _small(shape) else (0, 4)
    height, width = (((side - margin) // 2 - margin) // 2 for side in shape[1:])
    layers = convolutions((shape[0], 10, 10, 20, 20), padding=padding, pooled=(2, 4))
    *hidden, last = perceptron(20 * height * width, (50,), classes)
    return nn.Sequential(*layers, nn.Flatten(), *hidden, nn.Dropout(0.5), last)


def c1(shape: Shape, classes: int) -> nn.Module:
    """C1 of the batch-robustness paper: two 5x5 convolutions of 64 with batch norm, then 384 and 192 neurons.

    The table gives neither padding nor stride: as in the code that Yao et al. (2018) released, convolutions
    keep the size and the 3x3 pooling halves it. Batch norm stands after the pooling, as the table has it.
    """
    channels, height, width = shape
    layers: list[nn.Module] = []
    for inputs in (channels, 64):
        layers += [nn.Conv2d(inputs, 64, 5, padding=2), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [nn.ReLU(), nn.BatchNorm2d(64)]
    pixels = -(-height // 4) * -(-width // 4)
    return nn.Sequential(*layers, nn.Flatten(), *perceptron(64 * pixels, (384, 192), classes))


def convnet(shape: Shape, classes: int) -> nn.Module:
    """ConvNet of the gradient-inversion papers: eight 3x3 convolutions with batch norm, 3.1M parameters.

    Widths 64, 128, 128, 256 x 5, with 3x3 pooling after the sixth and the eighth, as the code of Geiping et
    al. (2020) runs it (3,112,420 parameters on CIFAR-100).
    """
    return _eight_convolutions("convnet", shape, classes, width=64)


def convnet_16(shape: Shape, classes: int) -> nn.Module:
    """`convnet` with a quarter of its channels: widths 16, 32, 32, 64 x 5, for searches on a laptop."""
    return _eight_convolutions("convnet-16", shape, classes, width=16)


def _eight_convolutions(name: str, shape: Shape, classes: int, width: int) -> nn.Module:
    """Eight 3x3 convolutions, of which the first has `width` channels, and a linear layer."""
    check_side(name, shape, 9)
    channels, height, across = shape
    widths = (channels, width, 2 * width, 2 * width, *(4 * width,) * 5)
    layers = convolutions(widths, pooled=(6, 8), pooling=3, normed=True)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * (height // 9) * (across // 9), classes))


def convolutions(
    widths: tuple[int, ...],
    *,
    kernel: int = 3,
    padding: int = 1,
    pooled: tuple[int, ...] = (),
    pooling: int = 2,
    normed: bool = False,
) -> list[nn.Module]:
    """Convolutions from each width to the next with ReLU, and pooling at the places counted from 1."""
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        layers.append(nn.Conv2d(inputs, outputs, kernel, padding=padding))
        layers += [nn.BatchNorm2d(outputs)] if normed else []
        layers += [nn.MaxPool2d(pooling)] if place in pooled else []
        layers.append(nn.ReLU())
    return layers


def _small(shape: Shape) -> bool:
    """Whether unpadded convolutions would leave nothing of an image."""
    return min(shape[1:]) < UNPADDED_SIDE
