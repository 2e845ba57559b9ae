"""Models for attacks to fool: honest ones trained on the digits, and ones that hide their gradients."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.learning.ascent import ascend
from glasshouse.models import build

TRAINED = 1200


@cache
def digits() -> Images:
    return load("digits").train


def attacked(count: int = 200) -> Images:
    """Images that no model was trained on."""
    return digits()[TRAINED : TRAINED + count]


@cache
def honest(network: str = "lenet", adversarial: float = 0.0, epochs: int = 12) -> nn.Module:
    """A network trained on the digits, on adversarial examples within that limit unless it is 0."""
    torch.manual_seed(0)
    rng, images = torch.Generator().manual_seed(0), digits()[:TRAINED]
    model = build(network, images.shape, images.classes)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        eps = adversarial * min(1.0, 2 * (epoch + 1) / epochs)
        for batch in torch.randperm(len(images), generator=rng).split(64):
            x, y = images.x[batch], images.y[batch]
            if adversarial:
                x = ascend(model, x, y, eps=eps, step=eps / 4, steps=7, rng=rng)
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimiser.step()
    return model.eval()


class Scaled(nn.Module):
    """Logits so large that the softmax saturates and the gradient of the loss underflows."""

    def __init__(self, model: nn.Module, scale: float = 1e4) -> None:
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.model(x)


class Quantised(nn.Module):
    """Pixels rounded to a few levels first: a staircase, flat almost everywhere."""

    def __init__(self, model: nn.Module, levels: int = 8) -> None:
        super().__init__()
        self.model, self.levels = model, levels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model((x * self.levels).round() / self.levels)


class Steep(nn.Module):
    """Pixels through a sigmoid so steep that it is a step, and its slope nothing, for most."""

    def __init__(self, model: nn.Module, steepness: float = 2000.0) -> None:
        super().__init__()
        self.model, self.steepness = model, steepness

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(torch.sigmoid(self.steepness * (x - 0.5)))


class Noisy(nn.Module):
    """Fresh noise on every question."""

    def __init__(self, model: nn.Module, std: float = 0.2) -> None:
        super().__init__()
        self.model, self.std = model, std

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x + self.std * torch.randn_like(x))


class Shattered(nn.Module):
    """A fine ripple on every pixel: gradients everywhere, which point nowhere."""

    def __init__(self, model: nn.Module, waves: float = 2000.0, height: float = 0.02) -> None:
        super().__init__()
        self.model, self.waves, self.height = model, waves, height

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x + self.height * torch.sin(self.waves * x))
