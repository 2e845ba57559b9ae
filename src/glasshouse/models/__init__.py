"""The papers' networks, by name; their weights are torch's defaults unless a docstring says otherwise."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from glasshouse.errors import BadInput
from glasshouse.models.registry import MODELS
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.reading import available_memory

if TYPE_CHECKING:  # so that the names can be listed without waiting for torch
    from torch import nn

__all__ = ["MODELS", "build"]

USUAL_VALUES, USUAL_CLASSES = 3 * 64 * 64, 10_000
"""Up to here every network of the zoo is small enough to be built without counting first."""


def build(name: str, shape: Shape, classes: int) -> "nn.Module":
    """The network `name` for images of `shape` (channels, height, width), giving (N, classes) logits.

    Its weights are drawn from torch's generator: seed it first.
    """
    factory = MODELS.load(name)
    check_shape(shape)
    check_classes(classes)
    if math.prod(shape) > USUAL_VALUES or classes > USUAL_CLASSES:
        _check_parameters(name, factory, shape, classes)
    model: nn.Module = factory(shape, classes)
    return model


def _check_parameters(name: str, factory: "Callable[..., nn.Module]", shape: Shape, classes: int) -> None:
    """Refuse a network that takes over half of the memory; torch counts without making room for it."""
    import torch

    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in factory(shape, classes).parameters())
    if count * 4 > available_memory() / 2:
        raise BadInput(
            f"model {name!r} would have {count:,} parameters for shape {shape} and {classes} classes, which "
            "do not fit into memory; give smaller images, fewer classes or a smaller model"
        )
