"""Small networks and what their gradients are matched to."""

import torch
from torch import nn

from glasshouse.attacks.inversion.target import Target
from glasshouse.data.images import Images
from glasshouse.learning.layout import Layout

SHAPE, CLASSES = (2, 3, 4), 5


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(count, seed=0, shape=SHAPE):
    x = torch.rand(count, *shape, generator=rng(seed))
    return Images(x, torch.arange(count) % CLASSES, CLASSES)


def smooth(shape=(1, 6, 6), classes=CLASSES, seed=0):
    torch.manual_seed(seed)
    layers = (nn.Conv2d(shape[0], 6, 3, padding=1), nn.Sigmoid(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(6 * shape[1] * shape[2], classes))


def target_of(network, images, **entries):
    gradient = torch.cat([
        part.flatten()
        for part in torch.autograd.grad(
            nn.functional.cross_entropy(network(images.x), images.y), list(network.parameters())
        )
    ])  # fmt: skip
    layout = Layout.of(network)
    gradient = torch.cat([gradient, gradient.new_zeros(layout.size - layout.trainable)])
    known = {"labels": images.y} | entries
    return Target(network, layout, gradient, images.shape, CLASSES, len(images), **known)
