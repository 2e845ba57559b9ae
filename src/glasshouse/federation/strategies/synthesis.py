"""The fuzzy synthesising network (Guo et al. 2022): a rough inversion of the global model, and its samples.

The hidden model H maps class probabilities back to images. It is trained on noise: with z from a Gaussian
mixture of the clients' pixel means and variances, H(P(z)) is fitted to z, P being the global model, which
stays fixed (Equation 3). Fed with nearly certain probabilities, it makes samples of every class (Equation 9).
"""

import math
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.models.shapes import Shape


def hidden_model(shape: Shape, classes: int, hidden: int) -> nn.Module:
    """H: class probabilities, (N, classes), to images, (N, C, H, W), by one layer of `hidden` neurons."""
    first, second = nn.Linear(classes, hidden), nn.Linear(hidden, math.prod(shape))
    return nn.Sequential(first, nn.ReLU(), second, nn.Unflatten(1, shape))


def moments(images: Images) -> Tensor:
    """The mean and the variance of all pixels, shape (2,)."""
    variance, mean = torch.var_mean(images.x.double(), correction=0)
    return torch.stack([mean, variance]).float()


def mixture(known: Tensor, shares: Tensor, number: int, shape: Shape, rng: torch.Generator) -> Tensor:
    """`number` draws, (number, C, H, W): each has one client's moments, (K, 2), chosen by `shares`, (K,)."""
    chosen = known[torch.multinomial(shares, number, replacement=True, generator=rng)]
    mean, deviation = (column.view(-1, 1, 1, 1) for column in (chosen[:, 0], chosen[:, 1].sqrt()))
    draws: Tensor = mean + deviation * torch.randn(number, *shape, generator=rng)
    return draws


def reconstruction_loss(images: Tensor, z: Tensor) -> Tensor:
    """Equation 3: the mean distance between what H returns and its targets, both (N, C, H, W)."""
    distances: Tensor = torch.linalg.vector_norm((images - z).flatten(1), dim=1)
    return distances.mean()


def near_certain(classes: Tensor, number: int, confidence: Tensor) -> Tensor:
    """S of Equation 9 in rows, (N, number): `confidence` for the class, the rest evenly for the others."""
    others = (1 - confidence) / max(1, number - 1)
    rows = others[:, None].expand(-1, number).clone()
    rows[torch.arange(len(classes)), classes] = confidence
    return rows


def train_hidden(
    hidden: nn.Module, classifier: nn.Module, batches: Iterator[Tensor], steps: int, lr: float
) -> None:
    """Fit `hidden` to invert `classifier`, in eval mode and left as it is, on `steps` batches of noise."""
    optimiser = torch.optim.Adam(hidden.parameters(), lr, fused=True)
    for z in islice(batches, steps):
        with torch.no_grad():
            probabilities = classifier(z).softmax(1)
        loss = reconstruction_loss(hidden(probabilities), z)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
