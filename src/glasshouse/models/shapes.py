"""Which image shapes and class counts a network can be built for."""

import math
from collections.abc import Sequence

from glasshouse.errors import BadInput

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""

MOST_VALUES, MOST_CLASSES = 2**22, 100_000
"""The largest image, in channels x height x width, and the most classes that a network is built for."""

LENET_SIDE = 4
"""The smallest side that `lenet` can take."""


def check_shape(shape: Shape) -> None:
    """Refuse what is not (channels, height, width) in positive whole numbers."""
    if not isinstance(shape, Sequence) or len(shape) != 3 or not all(map(_positive, shape)):
        raise BadInput(
            f"image shape {shape!r} must be channels, height and width as positive whole numbers; "
            "write it like (1, 28, 28)"
        )
    if math.prod(shape) > MOST_VALUES:
        raise BadInput(
            f"image shape {shape!r} has {math.prod(shape):,} values, over the limit of {MOST_VALUES:,}; "
            "bring the images to a smaller size"
        )
    channels, height, width = shape
    if width <= 4 < min(channels, height):
        raise BadInput(
            f"image shape {shape!r} looks like height, width, channels; "
            f"channels come first: write {(width, channels, height)}"
        )


def check_classes(classes: int) -> None:
    """Refuse fewer than two classes, or more than anybody tells apart."""
    if not _positive(classes) or classes < 2:
        raise BadInput(f"{classes!r} classes; a classifier needs a whole number of at least 2")
    if classes > MOST_CLASSES:
        raise BadInput(f"{classes} classes, over the limit of {MOST_CLASSES:,}; give the number of classes")


def check_side(model: str, shape: Shape, least: int) -> None:
    """Refuse images with a side under `least` pixels, and name a model that takes them."""
    _, height, width = shape
    if min(height, width) < least:
        smaller = "lenet" if least > LENET_SIDE <= min(height, width) else "mlp"
        raise BadInput(
            f"model {model!r} cannot take {height}x{width} images: it shrinks them to nothing below "
            f"{least}x{least}; use model {smaller!r} or larger images"
        )


def _positive(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0
