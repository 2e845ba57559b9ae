"""The convolutional networks of the Scale-MIA paper, each split where its attack cuts: encoder and head.

Sizes are those of the paper's Tables 9 to 12. The tables put a ReLU on the logits too, which would leave a
class no way to score below zero: these networks return the logits themselves.
"""

import math
from itertools import pairwise

from torch import Tensor, nn

from glasshouse.models import residual
from glasshouse.models.convolutional import convolutions
from glasshouse.models.dense import perceptron
from glasshouse.models.shapes import Shape, check_side


class SplitNetwork(nn.Module):
    """A classifier as `encoder`, (N, C, H, W) images to (N, d) latents, and `head`, latents to logits.

    `latent` is the shape of one latent before it is flattened; `head[0]` is the first linear layer.
    """

    def __init__(self, encoder: nn.Module, head: nn.Sequential, latent: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.latent = latent

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (N, classes)."""
        logits: Tensor = self.head(self.encoder(x))
        return logits


def cnn(shape: Shape, classes: int) -> SplitNetwork:
    """CNN of the Scale-MIA paper: three strided 4x4 convolutions (12, 32, 64), then 1024 and 512 neurons."""
    check_side("cnn", shape, 8)
    channels, height, width = shape
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((channels, 12, 32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 4, stride=2, padding=1), nn.ReLU()]
    return _split(layers, (64, height // 8, width // 8), (1024, 512), classes)


def alexnet(shape: Shape, classes: int) -> SplitNetwork:
    """AlexNet of the Scale-MIA paper: five 3x3 convolutions (64 to 384), then 512 and 120 neurons."""
    check_side("alexnet", shape, 8)
    channels, height, width = shape
    layers = convolutions((channels, 64, 192, 384, 256, 256), pooled=(1, 2, 5))
    return _split(layers, (256, height // 8, width // 8), (512, 120), classes)


def vgg(shape: Shape, classes: int) -> SplitNetwork:
    """VGG of the Scale-MIA paper: eight 3x3 convolutions (64 to 512), then 1024 and 200 neurons.

    Table 11 has the image grow again after the third pooling. With the pooling it lists, 2x2 three times and
    then only 1x1, the last four convolutions see 4x4 pixels of a 32x32 image, and so the table's 4x4x512
    latent comes out. Like the ResNet's, its batch norm stands in the authors' code only; without it the
    latent of an untrained network hardly depends on the image.
    """
    check_side("vgg", shape, 8)
    channels, height, width = shape
    layers = convolutions((channels, 64, 128, 256, 256, 512, 512, 512, 512), pooled=(1, 2, 4), normed=True)
    return _split(layers, (512, height // 8, width // 8), (1024, 200), classes)


def resnet(shape: Shape, classes: int) -> SplitNetwork:
    """ResNet of the Scale-MIA paper: four stages of two blocks (32 to 256), no pooling, then 512 neurons.

    Table 12 gives the first stage both stride 2 and its full size, and the stem both 32 and 64 channels:
    stride 1 and 32 are what lead to the table's 4x4x256 latent. It lists one block a stage and no shortcuts;
    as its stage names and the authors' code suggest a stage has two blocks, with the usual 1x1 shortcuts.
    """
    channels, height, width = shape
    layers = residual.body(channels, (32, 64, 128, 256), blocks=2)
    return _split(layers, (256, -(-height // 8), -(-width // 8)), (512,), classes)


def _split(
    layers: list[nn.Module], latent: tuple[int, ...], hidden: tuple[int, ...], classes: int
) -> SplitNetwork:
    encoder = nn.Sequential(*layers, nn.Flatten())
    return SplitNetwork(encoder, perceptron(math.prod(latent), hidden, classes), latent)
