"""Pictures for the page: what went in, and what the attack made of it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from glasshouse.attacks.attack import AdversarialExamples, Evidence
from glasshouse.auditing.truth import Truth
from glasshouse.learning.evaluate import predict
from glasshouse.store import write_bytes

SHOWN = 8
SIDE = 96


def pictures(evidence: Evidence, truth: Truth, folder: Path, stem: str) -> list[dict[str, Any]]:
    """Write a few originals and results as PNG files under `folder`; returns their entries for the page.

    `stem` begins the names of the files.
    """
    if not isinstance(evidence, AdversarialExamples):
        return []
    x, y = truth.candidates.x, truth.candidates.y
    before, after = (predict(truth.model, images).argmax(1) for images in (x, evidence.x))
    fooled = ((before == y) & (after != y)).nonzero().flatten()[:SHOWN].tolist()
    names = truth.candidates.names or tuple(map(str, range(truth.candidates.classes)))
    entries = []
    for position in fooled:
        files = {"original": x[position], "result": evidence.x[position]}
        paths = {key: f"gallery/{stem}-{position}-{key}.png" for key in files}
        for key, image in files.items():
            save_png(image, folder / paths[key])
        told = f"{names[int(before[position])]} becomes {names[int(after[position])]}"
        entries.append({"caption": told, "note": f"each pixel moved by at most {evidence.eps:g}"} | paths)
    return entries


def save_png(image: Tensor, path: Path) -> None:
    """Write an image of shape (C, H, W) in [0, 1], enlarged to at least 96 pixels a side."""
    pixels = (image.permute(1, 2, 0) * 255).round().byte().numpy()
    grow = max(1, SIDE // min(pixels.shape[:2]))
    enlarged = np.kron(pixels, np.ones((grow, grow, 1), dtype=np.uint8))
    encoded = io.BytesIO()
    Image.fromarray(enlarged.squeeze(2) if enlarged.shape[2] == 1 else enlarged).save(encoded, "png")
    write_bytes(path, encoded.getvalue())
