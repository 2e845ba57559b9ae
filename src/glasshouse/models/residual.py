"""Residual networks for small images (He et al., 2016): a 3x3 stem, no pooling before the last layer."""

from collections.abc import Sequence

from torch import Tensor, nn

from glasshouse.models.shapes import Shape
from glasshouse.options import check_whole

WIDEST = 4096
"""Channels of a network's first stage, at most."""


def resnet18(shape: Shape, classes: int, *, width: int = 64) -> nn.Module:
    """ResNet18 with a 3x3 stem: four stages of two blocks, 11,173,962 parameters on CIFAR-10.

    Convolutions start from He's initialisation, as in the paper. The first stage has `width` channels, each
    further one twice as many.
    """
    check_whole("resnet18", "width", width, 1, WIDEST)
    return _classifier(shape[0], (width, 2 * width, 4 * width, 8 * width), blocks=2, classes=classes)


def resnet20(shape: Shape, classes: int, *, width: int = 16) -> nn.Module:
    """ResNet20 (He et al. 2016): three stages of three blocks, widths 16, 32 and 64, 0.27M parameters.

    Convolutions start from He's initialisation, as in the paper; shortcuts that change the size are 1x1
    convolutions. The first stage has `width` channels, each further one twice as many.
    """
    check_whole("resnet20", "width", width, 1, WIDEST)
    return _classifier(shape[0], (width, 2 * width, 4 * width), blocks=3, classes=classes)


def resnet20_4(shape: Shape, classes: int) -> nn.Module:
    """ResNet20 with four times the channels (ATS paper): three stages of three blocks, 4.35M parameters.

    Convolutions start from He's initialisation, as in the paper.
    """
    return _classifier(shape[0], (64, 128, 256), blocks=3, classes=classes)


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride), rounded up."""
        out: Tensor = self.relu(self.branch(x) + self.shortcut(x))
        return out


class GlobalMean(nn.Module):
    """The mean over all pixels: (N, C, H, W) to (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """Average each channel."""
        return x.mean((2, 3))


def body(channels: int, widths: Sequence[int], blocks: int) -> list[nn.Module]:
    """Stem and stages; each stage after the first halves the image, rounding up."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(),
    ]
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for place in range(blocks):
            layers.append(Block(inputs, width, stride=2 if stage > 0 and place == 0 else 1))
            inputs = width
    return layers


def _classifier(channels: int, widths: Sequence[int], blocks: int, classes: int) -> nn.Module:
    model = nn.Sequential(*body(channels, widths, blocks), GlobalMean(), nn.Linear(widths[-1], classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
