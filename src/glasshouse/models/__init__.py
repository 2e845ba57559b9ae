"""The papers' networks, by name; their weights are torch's defaults unless a docstring says otherwise."""

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from glasshouse.errors import BadInput
from glasshouse.models.registry import MODELS
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.models.signature import check_options, unknown_model
from glasshouse.reading import available_memory
from glasshouse.registry import parse_spec

if TYPE_CHECKING:  # so that the names can be listed without waiting for torch
    from torch import nn

__all__ = ["MODELS", "build"]

USUAL_VALUES, USUAL_CLASSES = 3 * 64 * 64, 10_000
"""Up to here every network of the zoo is small enough to be built without counting first."""


def build(spec: str, shape: Shape, classes: int) -> "nn.Module":
    """The network `spec` for images of `shape` (channels, height, width), giving (N, classes) logits.

    `spec` is a name, with options where it has any: `resnet20(width=8)`. The weights are drawn from torch's
    generator: seed it first.
    """
    name, options = parse_spec(spec, "model")
    if name not in MODELS.places:
        raise unknown_model(name)
    factory = MODELS.load(name)
    check_options(spec, options, inspect.signature(factory))
    check_shape(shape)
    check_classes(classes)

    def made() -> "nn.Module":
        model: nn.Module = factory(shape, classes, **options)
        return model

    if options or math.prod(shape) > USUAL_VALUES or classes > USUAL_CLASSES:
        _check_parameters(spec, made, shape, classes)
    return made()


def _check_parameters(spec: str, made: "Callable[[], nn.Module]", shape: Shape, classes: int) -> None:
    """Refuse a network that takes over half of the memory; torch counts without making room for it."""
    import torch

    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in made().parameters())
    if count * 4 > available_memory() / 2:
        raise BadInput(
            f"model {spec!r} would have {count:,} parameters for shape {shape} and {classes} classes, which "
            "do not fit into memory; give smaller images, fewer classes or a smaller model"
        )
