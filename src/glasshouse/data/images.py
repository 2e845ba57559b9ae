"""Labelled images in memory."""

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

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    def label_counts(self) -> Tensor:
        """How many images each class has, shape (classes,)."""
        return torch.bincount(self.y, minlength=self.classes)


def checked(images: Images, source: str) -> Images:
    """Return `images` if they keep the rules of the class; `source` is named in the error if not."""
    x, y = images.x, images.y
    if x.ndim != 4 or len(x) != len(y) or y.ndim != 1:
        raise BadInput(
            f"{source}: images of shape {tuple(x.shape)} with labels of shape {tuple(y.shape)}; "
            "give images as (N, C, H, W) or (N, H, W, C) and one label for each"
        )
    if len(y) == 0:
        raise BadInput(f"{source}: no images; give at least one for each class")
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).flatten(1).any(1).nonzero()[0, 0])
        raise BadInput(f"{source}: image {bad} has NaN or infinite pixels; remove or repair it")
    low, high = float(x.min()), float(x.max())
    if low < 0 or high > 1:
        raise BadInput(f"{source}: pixels from {low:g} to {high:g}; floats must lie in [0, 1], or use uint8")
    outside = ((y < 0) | (y >= images.classes)).nonzero()
    if len(outside):
        first = int(outside[0, 0])
        raise BadInput(
            f"{source}: label {int(y[first])} of image {first} is out of range; "
            f"labels must lie in 0..{images.classes - 1}"
        )
    empty = (images.label_counts() == 0).nonzero().flatten().tolist()
    if empty:
        raise BadInput(
            f"{source}: class {empty[0]} has no image; every class from 0 to {images.classes - 1} "
            "needs at least one: renumber the labels or add images"
        )
    return images
