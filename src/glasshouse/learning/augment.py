"""Random crops and flips of training batches."""

import torch
from torch import Tensor

MARGIN = 4
"""Black pixels added on every side before cropping, as is usual for 32x32 images."""


def crop_and_flip(x: Tensor, rng: torch.Generator) -> Tensor:
    """Shift each image of `x`, shape (B, C, H, W), by up to 4 pixels, and mirror half of them."""
    count, channels, height, width = x.shape
    wide = torch.nn.functional.pad(x, (MARGIN,) * 4)
    top, left = torch.randint(0, 2 * MARGIN + 1, (2, count, 1), generator=rng)
    rows = top + torch.arange(height)
    columns = left + torch.arange(width)
    mirrored = torch.rand(count, 1, generator=rng) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    every = torch.arange(count)
    # Indexed as (B, H, W, C): a view that leaves the result in the order convolutions like.
    cropped = wide.permute(0, 2, 3, 1)[every[:, None, None], rows[:, :, None], columns[:, None, :]]
    assert cropped.shape == (count, height, width, channels)
    return cropped.permute(0, 3, 1, 2)
