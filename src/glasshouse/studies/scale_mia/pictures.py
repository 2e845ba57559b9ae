"""A batch as one picture."""

import torch
from torch import Tensor

GAP = 2
GROWTH = 2


def contact_sheet(images: Tensor, columns: int = 8) -> Tensor:
    """Images (N, C, H, W) in [0, 1] side by side in rows, twice as large, with white between: (C, H', W')."""
    rows = -(-len(images) // columns)
    channels, height, width = images.shape[1:]
    large = images.float().repeat_interleave(GROWTH, 2).repeat_interleave(GROWTH, 3).clamp(0, 1)
    height, width = height * GROWTH, width * GROWTH
    sheet = torch.ones(channels, rows * (height + GAP) - GAP, columns * (width + GAP) - GAP)
    for place, image in enumerate(large):
        top, left = (place // columns) * (height + GAP), (place % columns) * (width + GAP)
        sheet[:, top : top + height, left : left + width] = image
    return sheet
