"""Labelled images in memory."""

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glasshouse.errors import BadInput


@dataclass(frozen=True, eq=False)
class Images:
    """Images `x`, float32 of shape (N, C, H, W) in [0, 1], with labels `y`, int64 of shape (N,)."""

    x: Tensor
    y: Tensor
    classes: int
    names: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, which: Any) -> "Images":
        """The images at the positions `which`: a slice, an index array or a mask."""
        if isinstance(which, np.ndarray):
            which = torch.from_numpy(which)
        return Images(self.x[which], self.y[which], self.classes, self.names)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as arrays, which workers map into their memory instead of copying."""
        return _from_arrays, (self.x.numpy(), self.y.numpy(), self.classes, self.names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    def label_counts(self) -> Tensor:
        """How many images each class has, shape (classes,)."""
        return torch.bincount(self.y, minlength=self.classes)

    def joined(self, other: "Images") -> "Images":
        """These images, then `other`; a view when both lie side by side in memory, else a copy."""
        return Images(_joined(self.x, other.x), torch.cat([self.y, other.y]), self.classes, self.names)


def _from_arrays(x: np.ndarray, y: np.ndarray, classes: int, names: tuple[str, ...]) -> Images:
    with warnings.catch_warnings():
        # Ray hands arrays over read-only; nothing writes into images.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return Images(torch.from_numpy(x), torch.from_numpy(y), classes, names)


def _joined(first: Tensor, second: Tensor) -> Tensor:
    adjacent = (
        first.is_contiguous()
        and second.is_contiguous()
        and first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and second.storage_offset() == first.storage_offset() + first.numel()
    )
    if not adjacent:
        return torch.cat([first, second])
    shape = (len(first) + len(second), *first.shape[1:])
    return first.as_strided(shape, first.stride(), first.storage_offset())


def checked(images: Images, source: str, *, every_class: bool = True) -> Images:
    """Return `images` if they keep the rules of the class; `source` is named in the error if not.

    `every_class` asks for at least one image of each class, as training data need.
    """
    x, y, classes = images.x, images.y, images.classes
    whole = isinstance(classes, int | np.integer) and not isinstance(classes, bool)
    if not (_is_dense(x) and _is_dense(y) and whole):
        raise BadInput(
            f"{source}: images of type {type(x).__name__}, labels of type {type(y).__name__} and {classes!r} "
            "classes; give two dense tensors and a whole number"
        )
    if x.ndim != 4 or len(x) != len(y) or y.ndim != 1:
        raise BadInput(
            f"{source}: images of shape {tuple(x.shape)} with labels of shape {tuple(y.shape)}; "
            "give images as (N, C, H, W) or (N, H, W, C) and one label for each"
        )
    if x.numel() == 0:
        raise BadInput(f"{source}: no images; give at least one for each class")
    if x.dtype != torch.float32 or y.dtype != torch.int64:
        raise BadInput(
            f"{source}: images of type {x.dtype} with labels of type {y.dtype}; "
            "give float32 images in [0, 1] and int64 labels"
        )
    _check_pixels(x, source)
    _check_labels(images, source, every_class)
    return images


def _is_dense(values: object) -> bool:
    return (
        isinstance(values, Tensor)
        and values.layout is torch.strided
        and not (values.is_nested or values.is_quantized or values.is_meta or values.requires_grad)
    )


def _check_pixels(x: Tensor, source: str) -> None:
    low, high = (float(bound) for bound in x.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = int((~torch.isfinite(x)).flatten(1).any(1).nonzero()[0, 0])
        raise BadInput(f"{source}: image {bad} has NaN or infinite pixels; remove or repair it")
    if low < 0 or high > 1:
        raise BadInput(f"{source}: pixels from {low:g} to {high:g}; floats must lie in [0, 1], or use uint8")


def _check_labels(images: Images, source: str, every_class: bool) -> None:
    y, classes = images.y, images.classes
    if classes < 2:
        raise BadInput(f"{source}: {classes} class; a classifier needs images of at least two classes")
    outside = ((y < 0) | (y > min(classes - 1, torch.iinfo(torch.int64).max))).nonzero()
    if len(outside):
        first = int(outside[0, 0])
        raise BadInput(
            f"{source}: label {int(y[first])} of image {first} is out of range; "
            f"labels must lie in 0..{classes - 1}"
        )
    if not every_class:
        return
    if classes > len(y):  # counting would need memory for every class number up to the largest label
        raise BadInput(
            f"{source}: labels up to {classes - 1} for only {len(y)} images; "
            "every class needs at least one image: renumber the labels from 0 without gaps"
        )
    empty = (images.label_counts() == 0).nonzero().flatten().tolist()
    if empty:
        raise BadInput(
            f"{source}: class {empty[0]} has no image; every class from 0 to {classes - 1} "
            "needs at least one: renumber the labels or add images"
        )
