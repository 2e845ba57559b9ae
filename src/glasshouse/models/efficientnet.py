"""EfficientNet-B0 (Tan and Le, 2019), for images of any size."""

from torch import Tensor, nn

from glasshouse.models.residual import GlobalMean
from glasshouse.models.shapes import Shape

STAGES = (
    # expansion, kernel, stride, channels, blocks: the rows of the paper's Table 1
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def efficientnet_b0(shape: Shape, classes: int) -> nn.Module:
    """EfficientNet-B0: inverted bottlenecks with squeeze-and-excitation, 4,020,358 parameters on CIFAR-10.

    Dropout 0.2 before the last layer as in the paper; without its stochastic depth, so that what a member's
    gradient shows does not depend on which layers were skipped.
    """
    layers = _convolution(shape[0], 32, kernel=3, stride=2)
    inputs = 32
    for expansion, kernel, stride, channels, blocks in STAGES:
        for place in range(blocks):
            layers.append(Bottleneck(inputs, channels, expansion, kernel, stride if place == 0 else 1))
            inputs = channels
    layers += _convolution(inputs, 1280, kernel=1)
    return nn.Sequential(*layers, GlobalMean(), nn.Dropout(0.2), nn.Linear(1280, classes))


class Bottleneck(nn.Module):
    """MBConv: widen, filter each channel alone, reweight them, narrow; with a shortcut where sizes agree."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        layers = _convolution(inputs, wide, kernel=1) if expansion > 1 else []
        layers += _convolution(wide, wide, kernel, stride, groups=wide)
        layers += [Excitation(wide, inputs // 4), *_convolution(wide, outputs, kernel=1)[:-1]]
        self.branch = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride), rounded up."""
        out: Tensor = self.branch(x)
        return x + out if self.shortcut else out


class Excitation(nn.Module):
    """Squeeze-and-excitation: scale each channel by a weight in (0, 1) computed from all channel means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.Conv2d(channels, squeezed, 1), nn.SiLU(), nn.Conv2d(squeezed, channels, 1), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W), reweighted."""
        scaled: Tensor = x * self.weigh(x.mean((2, 3), keepdim=True))
        return scaled


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution that keeps the size, up to its stride, with batch norm and SiLU."""
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    ]
