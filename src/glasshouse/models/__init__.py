"""The papers' networks, by name; their weights are torch's defaults unless a docstring says otherwise."""

from typing import TYPE_CHECKING

from glasshouse.models.registry import MODELS
from glasshouse.models.shapes import Shape, check_classes, check_shape

if TYPE_CHECKING:  # so that the names can be listed without waiting for torch
    from torch import nn

__all__ = ["MODELS", "build"]


def build(name: str, shape: Shape, classes: int) -> "nn.Module":
    """The network `name` for images of `shape` (channels, height, width), giving (N, classes) logits.

    Its weights are drawn from torch's generator: seed it first.
    """
    factory = MODELS.load(name)
    check_shape(shape)
    check_classes(classes)
    model: nn.Module = factory(shape, classes)
    return model
