"""Read the file formats in which the named sets are published, and say clearly what is wrong with a file."""

import csv
import math
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from glasshouse.errors import BadInput
from glasshouse.reading import available_memory, check_regular

UNSIGNED_BYTE = 8  # the idx format's code for its element type
GZIP = 31  # zlib's window setting for a gzip header and trailer
UNPACKED = 2**30  # bytes that are unpacked at most, twenty times as many as any published file has
CIFAR_SHAPE = (3, 32, 32)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The uint8 array in an idx file, gzipped or not: labels have one dimension, images three."""
    raw = read_bytes(path)
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if raw[:4] != magic:
        raise BadInput(
            f"{path}: starts with {raw[:4].hex() or 'nothing'}, not the idx magic number {magic.hex()}; "
            "delete the file and get it again"
        )
    header = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(raw[4:header], ">u4")) if len(raw) >= header else ()
    expected = header + (int(np.prod(shape, dtype=object)) if shape else 0)
    if len(raw) != expected:
        raise BadInput(
            f"{path}: {len(raw)} bytes found, {expected} expected by its header; "
            f"the file is {'cut short' if len(raw) < expected else 'too long'}: delete it and get it again"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def read_cifar(path: Path, label_bytes: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, 32, 32) and labels (N,), both uint8, from a CIFAR binary file; no copy of the pixels.

    Each record has `label_bytes` labels, of which the last is used, then the pixels.
    """
    check_regular(path)
    raw = np.fromfile(path, np.uint8)
    record = label_bytes + int(np.prod(CIFAR_SHAPE))
    if len(raw) == 0 or len(raw) % record:
        raise BadInput(
            f"{path}: {len(raw)} bytes found, expected a multiple of {record}; "
            "the file is cut short: delete it and get it again"
        )
    records = raw.reshape(-1, record)
    labels = records[:, label_bytes - 1].copy()
    check_labels(path, labels, classes)
    return records[:, label_bytes:].reshape(-1, *CIFAR_SHAPE), labels


def read_hmnist(images: Path, table: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    """Images (N, 3, 28, 28) uint8, labels, lesion ids and class names, from an .npy and a .csv file."""
    try:
        check_regular(images)
        with images.open("rb") as file:
            check_npy(file, images.stat().st_size)
        x = np.load(images, allow_pickle=False)
    except BadInput:
        raise
    except Exception as error:  # over a damaged file numpy raises errors of many kinds
        raise BadInput(
            f"{images}: not a whole NumPy file ({first_line(error)}); put it there again"
        ) from error
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] != 3:
        raise BadInput(f"{images}: expected uint8 images of shape (N, H, W, 3); put the right file there")
    try:
        with table.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except csv.Error as error:
        raise BadInput(f"{table}: not a table ({error}); put the right file there") from error
    columns = set(rows[0]) if rows else set()
    if not {"lesion_id", "label", "dx"} <= columns or len(rows) != len(x):
        raise BadInput(
            f"{table}: {len(rows)} rows for {len(x)} images; expected one for each, "
            "with the columns lesion_id, label and dx"
        )
    name_of: dict[int, str] = {}
    for number, row in enumerate(rows):
        if not (row["label"] or "").isdecimal():
            raise BadInput(f"{table}: label {row['label']!r} of row {number} is not a class number 0, 1, ...")
        name_of.setdefault(int(row["label"]), row["dx"])
    y = np.array([int(row["label"]) for row in rows])
    lesions = np.array([row["lesion_id"] for row in rows])
    return x.transpose(0, 3, 1, 2), y, lesions, tuple(name_of[label] for label in sorted(name_of))


def check_npy(file: IO[bytes], size: int, name: str = "it") -> tuple[tuple[int, ...], np.dtype]:
    """The shape and type of .npy data of `size` bytes in all; a ValueError where other than those follow.

    NumPy makes room for what a header promises before it looks how much there is.
    """
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in headers:
        raise ValueError(f"version {version} of the format is for tables, not for arrays")
    shape, _, dtype = headers[version](file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds objects, and loading them could run code")
    promised, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if promised != there:
        raise ValueError(f"its header promises {promised:,} bytes for shape {shape}, and {there:,} follow")
    return shape, dtype


def check_room(needed: int, source: str) -> None:
    """Refuse data that would need more bytes of memory than there are."""
    if needed > (available := available_memory()):
        raise BadInput(
            f"{source}: {needed / 2**30:,.1f} GiB in memory, with {available / 2**30:,.1f} GiB available; "
            "give fewer or smaller images"
        )


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, unpacked if its name ends in .gz; a cut-short gzip file gives what there is."""
    check_regular(path)
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return zlib.decompressobj(GZIP).decompress(raw, UNPACKED)
    except zlib.error as error:
        raise BadInput(f"{path}: not a sound gzip file ({error}); delete it and get it again") from error


def check_labels(path: Path, labels: np.ndarray, classes: int) -> None:
    """Refuse label bytes that name no class."""
    outside = np.flatnonzero(labels >= classes)
    if len(outside):
        raise BadInput(
            f"{path}: label {labels[outside[0]]} of image {outside[0]} is out of range; labels must lie in "
            f"0..{classes - 1}: delete the file and get it again"
        )


def first_line(error: BaseException) -> str:
    """What an exception says, as one line; its type where it says nothing."""
    try:
        return (str(error).splitlines() or [type(error).__name__])[0]
    except Exception:  # a user's own exception may not even have words
        return type(error).__name__
