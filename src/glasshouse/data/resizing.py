"""Images brought to the side that a network takes, once, when they are loaded."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshouse.data.dataset import Dataset
from glasshouse.data.formats import check_room
from glasshouse.data.images import Images

TOGETHER = 256
"""Images that are resized at once."""


def resized(images: Images, side: int | None) -> Images:
    """The images at `side` x `side` pixels; as they are where `side` is null."""
    if side is None or images.shape[1:] == (side, side):
        return images
    count, channels = images.x.shape[:2]
    check_room(count * channels * side * side * 4, f"images of {side}x{side} pixels")
    x = torch.empty(count, channels, side, side)
    for goal, part in zip(x.split(TOGETHER), images.x.split(TOGETHER)):
        goal.copy_(_scaled(part, side))
    return dataclasses.replace(images, x=x)


def resized_set(dataset: Dataset, side: int | None) -> Dataset:
    """The images of a data set at `side` x `side` pixels, side by side in memory as they were."""
    if side is None or dataset.train.shape[1:] == (side, side):
        return dataset
    pool, cut = resized(dataset.pool, side), len(dataset.train)
    train = dataclasses.replace(dataset.train, x=pool.x[:cut])
    test = None if dataset.test is None else dataclasses.replace(dataset.test, x=pool.x[cut:])
    return dataclasses.replace(dataset, train=train, test=test)


def news_of_sizes(before: Images, after: Images) -> list[str]:
    """What was done to the images, in words."""
    if before.shape == after.shape:
        return []
    (_, height, width), (_, side, _) = before.shape, after.shape
    return [f"images of {height}x{width} pixels are resized to {side}x{side}, bilinearly with antialiasing"]


def _scaled(x: Tensor, side: int) -> Tensor:
    """Images (N, C, H, W) at another side; rounding may leave [0, 1], which images do not."""
    return F.interpolate(x, (side, side), mode="bilinear", antialias=True, align_corners=False).clamp_(0, 1)
