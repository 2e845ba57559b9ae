"""Pictures for the page: what went in, and what the attack made of it."""

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from glasshouse.evidence.evidence import ImagePair
from glasshouse.exhibits import Picture
from glasshouse.store import write_bytes

SIDE = 96
GAP = 2
"""White pixels between the images of a sheet."""


def save_pictures(pairs: Iterable[ImagePair], folder: Path, stem: str) -> tuple[Picture, ...]:
    """Write originals and results as PNG files under `folder`, whose names begin with `stem`."""
    pictures = []
    for shown in pairs:
        original, result = (f"gallery/{stem}-{shown.name}-{part}.png" for part in ("original", "result"))
        save_png(shown.result, folder / result)
        if shown.original is not None:
            save_png(shown.original, folder / original)
        known = original if shown.original is not None else None
        pictures.append(Picture(caption=shown.caption, note=shown.note, original=known, result=result))
    return tuple(pictures)


def save_png(image: Tensor, path: Path) -> None:
    """Write an image of shape (C, H, W) in [0, 1], enlarged to at least 96 pixels a side."""
    pixels = (image.permute(1, 2, 0) * 255).round().byte().numpy()
    grow = max(1, SIDE // min(pixels.shape[:2]))
    enlarged = np.kron(pixels, np.ones((grow, grow, 1), dtype=np.uint8))
    encoded = io.BytesIO()
    Image.fromarray(enlarged.squeeze(2) if enlarged.shape[2] == 1 else enlarged).save(encoded, "png")
    write_bytes(path, encoded.getvalue())


def contact_sheet(images: Tensor, columns: int = 8) -> Tensor:
    """Images (N, C, H, W) in [0, 1] side by side in rows, twice as large, with white between: (C, H', W')."""
    rows = -(-len(images) // columns)
    large = images.float().clamp(0, 1).repeat_interleave(2, 2).repeat_interleave(2, 3)
    framed = F.pad(large, (0, GAP, 0, GAP), value=1.0)
    blank = framed.new_ones(rows * columns - len(framed), *framed.shape[1:])
    placed = torch.cat([framed, blank]).unflatten(0, (rows, columns))
    sheet: Tensor = placed.permute(2, 0, 3, 1, 4).flatten(3, 4).flatten(1, 2)
    return sheet[:, :-GAP, :-GAP]
