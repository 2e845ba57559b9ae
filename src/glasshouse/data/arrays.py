"""Turn a user's arrays, or an .npz file of them, into a data set."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from glasshouse.data.dataset import Dataset, from_pool, unit_pixels
from glasshouse.data.formats import check_npy, check_room, first_line
from glasshouse.data.ids import check_ids_like
from glasshouse.errors import BadInput, quoted

CHANNELS = (1, 3)
IDS = ("client", "user", "part")
KEYS = ("x", "y", "x_test", "y_test", *IDS)


def from_arrays(
    name: str,
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    *,
    source: str,
    every_class: bool = True,
    users: Any = None,
    clients: Any = None,
    parts: Any = None,
) -> Dataset:
    """A data set from pairs (images, labels) of arrays or tensors, and ids of the training images.

    Images are (N, H, W, C), (N, C, H, W) or (N, H, W) with one or three channels, uint8 or float in [0, 1].
    """
    pairs = [checked_pair(*train, source)]
    if test is not None:
        pairs.append(checked_pair(*test, f"{source} (test images)"))
    shapes = {x.shape[1:] for x, _ in pairs}
    if len(shapes) > 1:
        raise BadInput(f"{source}: training and test images differ in shape: {shapes}; give both the same")
    return from_pool(
        name,
        unit_pixels([x for x, _ in pairs], source),
        np.concatenate([y for _, y in pairs]),
        source=source,
        tests=len(pairs[1][1]) if test is not None else 0,
        every_class=every_class,
        users=users,
        clients=clients,
        parts=parts,
    )


def from_mapping(name: str, arrays: Mapping[str, Any], source: str, *, every_class: bool = True) -> Dataset:
    """A data set from arrays by the names that they have in an .npz file."""
    if unknown := [key for key in arrays if key not in KEYS]:
        raise BadInput(f"{source}: unknown array {quoted(unknown[0])}; there may be {', '.join(KEYS)}")
    _check_keys(source, set(arrays))
    test = (arrays["x_test"], arrays["y_test"]) if "x_test" in arrays else None
    user, client, part = (arrays.get(key) for key in ("user", "client", "part"))
    train = (arrays["x"], arrays["y"])
    ids = {"users": user, "clients": client, "parts": part}
    return from_arrays(name, train, test, source=source, every_class=every_class, **ids)


def read_npz(path: Path, *, every_class: bool = True) -> Dataset:
    """A data set from the arrays of an .npz file: `x`, `y` and, if there, the others of `KEYS`."""
    return from_mapping(path.stem, read_arrays(path), str(path), every_class=every_class)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What an .npz file holds of `KEYS`: `x` and `y` at least, and `y_test` wherever there is `x_test`."""
    if not path.is_file():
        raise BadInput(f"data {str(path)!r}: no such file; give the path of an .npz file with x and y")
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            raise BadInput(
                f"{path}: holds one array, not an archive; save it with numpy.savez(path, x=..., y=...)"
            )
    try:
        with zipfile.ZipFile(path) as archive:
            held = {name.removesuffix(".npy") for name in archive.namelist()}
            _check_keys(str(path), held)
            return _unpacked(archive, path)
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # over a damaged file zipfile and numpy raise errors of many kinds
        raise BadInput(
            f"{path}: cannot be read ({first_line(error)}); save plain arrays with numpy.savez, no objects"
        ) from error


def _check_keys(source: str, held: set[str]) -> None:
    missing = [key for key in ("x", "y") if key not in held]
    if ("x_test" in held) != ("y_test" in held):
        missing += [key for key in ("x_test", "y_test") if key not in held]
    if missing:
        raise BadInput(
            f"{source}: no array {missing[0]!r} beside {', '.join(sorted(held)) or 'none'}; save it with "
            "numpy.savez(path, x=images, y=labels), and x_test with y_test if there are test images"
        )


def _unpacked(archive: zipfile.ZipFile, path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive, unpacked only when their headers are true and all of them fit into memory."""
    present = {
        key: info for info in archive.infolist() if (key := info.filename.removesuffix(".npy")) in KEYS
    }
    check_room(sum(info.file_size for info in present.values()), str(path))
    heads = {}
    for key, info in present.items():
        with archive.open(info) as file:
            heads[key] = check_npy(file, info.file_size, key)
    count = (heads["y"][0] or (0,))[0]
    for key in set(IDS) & set(heads):
        check_ids_like(*heads[key], count, key, str(path))
    arrays = {}
    for key, info in present.items():
        with archive.open(info) as file:
            arrays[key] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def checked_pair(x: Any, y: Any, source: str) -> tuple[np.ndarray, np.ndarray]:
    """Images as (N, C, H, W) and integer labels as (N,), one for each image."""
    x, y = _array(x, source), _array(y, source)
    if x.dtype != np.uint8 and not np.issubdtype(x.dtype, np.floating):
        raise BadInput(f"{source}: pixels of type {x.dtype}; give uint8 from 0 to 255 or floats in [0, 1]")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if not np.issubdtype(y.dtype, np.integer):
        raise BadInput(f"{source}: labels of type {y.dtype}; give class numbers 0, 1, ... as integers")
    if y.ndim != 1 or x.ndim not in (3, 4) or len(x) != len(y) or x.size == 0:
        raise BadInput(
            f"{source}: images of shape {x.shape} with labels of shape {y.shape}; "
            "give images as (N, H, W, C), (N, C, H, W) or (N, H, W) and one label for each"
        )
    return _channels_first(x, source), y


def _array(values: Any, source: str) -> np.ndarray:
    try:
        return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except Exception as error:  # a user's own type may raise anything
        raise BadInput(
            f"{source}: not an array ({first_line(error)}); give arrays or dense tensors, of one image size"
        ) from error


def _channels_first(x: np.ndarray, source: str) -> np.ndarray:
    if x.ndim == 3:
        return x[:, None]
    if x.shape[1] in CHANNELS:
        return x
    if x.shape[3] in CHANNELS:
        return x.transpose(0, 3, 1, 2)
    raise BadInput(
        f"{source}: images of shape {x.shape[1:]}; they must have one (grey) or three (RGB) channels"
    )
