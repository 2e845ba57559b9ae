"""The study's own network for colour images, and an extractor that was trained elsewhere on other images."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.learning.evaluate import CHUNK
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive
from glasshouse.models.loading import seeded_model
from glasshouse.models.outputs import features
from glasshouse.models.shapes import Shape, check_side

GROUPS = 4
EXTRACTOR = "lenet"
"""The network whose convolutions give the features."""
FEATURES = 64
"""So many numbers an image."""
SEEN = 10_000
"""So many images of the source say in which directions features vary, and how far."""
QUANTILES = (0.1, 0.9)
"""Between these a feature rises from 0 to 1."""
PRETRAINING = Recipe(epochs=2, batch_size=60, optimiser="adam", lr=0.001)
FEWEST_STEPS = 500
"""An extractor that has few images to learn from repeats them until it has taken so many steps."""


def gn_cnn(shape: Shape, classes: int) -> nn.Module:
    """Three convolutions (16, 32, 64) with group norm, the first with stride 2, then 64 neurons.

    Group norm knows one image at a time, so two classes a client do not spoil its statistics as they do batch
    norm's. Without any norm, SGD at 0.01 leaves small networks untrained on CIFAR-10 after 50 rounds.
    """
    check_side("gn-cnn", shape, 8)
    channels, height, width = shape
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 5, stride=2, padding=2)]
    layers += [nn.GroupNorm(GROUPS, 16), nn.ReLU()]
    for inputs, outputs in ((16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(2)]
        layers += [nn.GroupNorm(GROUPS, outputs), nn.ReLU()]
    pixels = (-(-height // 2) // 4) * (-(-width // 2) // 4)
    hidden, last = nn.Linear(64 * pixels, 64), nn.Linear(64, classes)
    return nn.Sequential(*layers, nn.Flatten(), hidden, nn.ReLU(), last)


NETWORKS = {"gn-cnn": f"{__name__}:gn_cnn"}
"""Networks that are the study's own: their names, and where they are made."""


def spec_of(model: str) -> str:
    """A network as the zoo and its loader call it."""
    return NETWORKS.get(model, model)


def extracted(pool: Images, source: Images, seed: int) -> Images:
    """Features of all images in `pool`, as images of one row, by a network trained to classify `source`.

    They are what its convolutions give, along the main directions in which that varies on the source, brought
    to [0, 1] between two quantiles of it. Labels stay.
    """
    network = seeded_model(EXTRACTOR, source.shape, source.classes, derive(seed, "extractor"))
    laid_out(network)
    steps = PRETRAINING.total_steps(len(source))
    epochs = PRETRAINING.epochs * max(1, -(-FEWEST_STEPS // steps))
    recipe = replace(PRETRAINING, epochs=epochs)
    fit(network, read_vector(network), source, recipe, derive(seed, "pretraining"))
    network.eval()
    seen = _convolved(network, source.x[:SEEN])
    mean = seen.mean(0)
    _, _, directions = torch.linalg.svd(seen - mean, full_matrices=False)
    main = directions[:FEATURES].T
    least, most = ((seen - mean) @ main).quantile(torch.tensor(QUANTILES), dim=0)
    projected = (_convolved(network, pool.x) - mean) @ main
    rows = ((projected - least) / (most - least).clamp(min=1e-6)).clamp(0, 1)
    return Images(rows[:, None, None, :].contiguous(), pool.y, pool.classes, pool.names)


def source_of(name: str, held_out: Images) -> Images:
    """What an extractor learns from: the training images of the data set `name`, or what the server holds."""
    return held_out if name == HELD_OUT else load(name).train


HELD_OUT = "held-out"
"""The source of an extractor that learns from the server's own images."""


def _convolved(network: nn.Module, x: Tensor) -> Tensor:
    """The inputs of the first linear layer, shape (N, numbers)."""
    first = next(layer for layer in network.modules() if isinstance(layer, nn.Linear))
    with torch.inference_mode():
        return torch.cat([features(network, first, channels_last(chunk)) for chunk in x.split(CHUNK)]).clone()
