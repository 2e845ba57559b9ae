"""Pictures for the page: what went in, and what the attack made of it."""

import io
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from glasshouse.auditing.truth import Truth
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.learning.evaluate import predict
from glasshouse.measures.pictures import RECOVERED, match
from glasshouse.store import write_bytes

SHOWN = 8
SIDE = 96


@singledispatch
def pictures(evidence: Any, truth: Truth, folder: Path, stem: str) -> list[dict[str, Any]]:
    """Write a few originals and results as PNG files under `folder`; returns their entries for the page.

    `stem` begins the names of the files.
    """
    return []


@pictures.register
def _(evidence: AdversarialExamples, truth: Truth, folder: Path, stem: str) -> list[dict[str, Any]]:
    """The first images that the model is fooled on."""
    x, y = truth.candidates.x, truth.candidates.y
    before, after = (predict(truth.model, images).argmax(1) for images in (x, evidence.x[-1]))
    fooled = ((before == y) & (after != y)).nonzero().flatten()[:SHOWN].tolist()
    names = truth.candidates.names or tuple(map(str, range(truth.candidates.classes)))
    moved = "each pixel moved" if evidence.norm == "linf" else "the pixels together moved (L2)"
    entries = []
    for position in fooled:
        paths = _saved(x[position], evidence.x[-1, position], folder, f"{stem}-{position}")
        told = f"{names[int(before[position])]} becomes {names[int(after[position])]}"
        entries.append({"caption": told, "note": f"{moved} by at most {evidence.eps[-1]:g}"} | paths)
    return entries


@pictures.register
def _(evidence: Reconstructions, truth: Truth, folder: Path, stem: str) -> list[dict[str, Any]]:
    """The best, those around the median and the worst, of all samples."""
    if not len(evidence.x):
        return []
    originals = truth.held_by(evidence.clients).x
    made = match(originals, evidence.x)
    entries = []
    for position, rank in ranked(made.psnr).items():
        success = made.psnr[position] >= RECOVERED
        note = f"recovered: {RECOVERED:g} dB or more" if success else f"not recovered: below {RECOVERED:g} dB"
        if not made.returned[position]:
            note = "nothing was returned for it; grey stands in"
        paths = _saved(originals[position], made.guess[position], folder, f"{stem}-{position}")
        entries.append({"caption": f"{made.psnr[position]:.1f} dB, {rank}", "note": note} | paths)
    return entries


def ranked(psnr: np.ndarray) -> dict[int, str]:
    """The samples to show, best first, each with its rank: up to three best, three median and three worst.

    >>> ranked(np.array([10.0, 40.0, 20.0, 30.0]))
    {1: 'best', 3: 'median', 0: 'worst'}
    """
    order = np.argsort(-psnr, kind="stable").tolist()
    each = max(1, min(3, len(order) // 3))
    middle = (len(order) - each) // 2
    groups = {"best": order[:each], "worst": order[-each:], "median": order[middle : middle + each]}
    chosen: dict[int, str] = {}
    for rank, positions in groups.items():
        chosen = dict.fromkeys(positions, rank) | chosen
    return {position: chosen[position] for position in order if position in chosen}


def _saved(original: Tensor, result: Tensor, folder: Path, name: str) -> dict[str, str]:
    """Write both images; returns their paths inside `folder`."""
    files = {"original": original, "result": result}
    paths = {key: f"gallery/{name}-{key}.png" for key in files}
    for key, image in files.items():
        save_png(image, folder / paths[key])
    return paths


def save_png(image: Tensor, path: Path) -> None:
    """Write an image of shape (C, H, W) in [0, 1], enlarged to at least 96 pixels a side."""
    pixels = (image.permute(1, 2, 0) * 255).round().byte().numpy()
    grow = max(1, SIDE // min(pixels.shape[:2]))
    enlarged = np.kron(pixels, np.ones((grow, grow, 1), dtype=np.uint8))
    encoded = io.BytesIO()
    Image.fromarray(enlarged.squeeze(2) if enlarged.shape[2] == 1 else enlarged).save(encoded, "png")
    write_bytes(path, encoded.getvalue())
