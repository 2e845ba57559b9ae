"""Images that are already divided into members, non-members and others, each part from another source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.data.arrays import checked_pair, read_arrays
from glasshouse.data.dataset import from_pool, unit_pixels
from glasshouse.data.images import Images
from glasshouse.errors import BadInput


def read_parts(sources: Mapping[str, Any]) -> tuple[Images, dict[str, np.ndarray]]:
    """One pool of images, and the positions in it of each part.

    A part is the path of an .npz file with `x` and `y`, `Images`, or arrays (x, y); it may lack a class that
    another part has.
    """
    pairs = {name: read_pair(name, source) for name, source in sources.items()}
    shapes = {name: x.shape[1:] for name, (x, _) in pairs.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{shape} of the {name}" for name, shape in shapes.items())
        raise BadInput(f"images of different shapes: {listed}; give all of them the same")
    x = unit_pixels([images for images, _ in pairs.values()])
    y = np.concatenate([labels for _, labels in pairs.values()])
    pool = from_pool("parts", x, y, source=" and ".join(pairs)).train
    ends = np.cumsum([len(labels) for _, labels in pairs.values()])
    return pool, {name: np.arange(end - len(pairs[name][1]), end) for name, end in zip(pairs, ends)}


def read_pair(name: str, source: Any) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one part."""
    if isinstance(source, Images):
        return source.x.numpy(), source.y.numpy()
    if isinstance(source, str | Path) and str(source).endswith(".npz"):
        arrays = read_arrays(Path(source).expanduser())
        return checked_pair(arrays["x"], arrays["y"], str(source))
    if isinstance(source, tuple) and len(source) == 2:
        return checked_pair(*source, f"the {name}")
    raise BadInput(
        f"{name} = {str(source)!r} cannot be read; give the path of an .npz file with x and y, "
        "or in Python Images or arrays (x, y)"
    )
