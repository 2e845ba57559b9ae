"""Named arrays of any framework as safetensors; a file's names and shapes are read without its numbers."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from glasshouse.errors import BadInput, Fault, named, quoted


@dataclass(frozen=True)
class Form:
    """The shape of an array, and whether its numbers are floating."""

    shape: tuple[int, ...]
    floating: bool


KINDS = "fiub"
"""Numbers that a file can hold: floating, whole with and without a sign, true and false."""


def as_arrays(tensors: Mapping[str, Any], what: str) -> dict[str, np.ndarray]:
    """Arrays of the tensors, of torch or whatever numpy understands, by name."""
    if not isinstance(tensors, Mapping) or not tensors:
        raise BadInput(
            f"{what} is {quoted(tensors)}; give a mapping of names to arrays, such as model.state_dict()"
        )
    for name in tensors:
        if not isinstance(name, str):
            raise BadInput(f"{what}: the name {quoted(name)} is no text; name tensors as in the state_dict")
    return {name: _as_array(value, f"{what}: {name}") for name, value in tensors.items()}


def _as_array(value: Any, what: str) -> np.ndarray:
    if hasattr(value, "detach"):  # a tensor of torch, which need not be loaded here
        value = value.detach().cpu()
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.float()  # numpy has no bfloat16
        value = value.numpy()
    try:
        array = np.ascontiguousarray(value).reshape(np.shape(value))
    except Exception as error:  # a framework's own type may raise anything
        raise BadInput(f"{what} is no array ({named(error)}); give numpy arrays or tensors") from error
    if array.dtype.kind not in KINDS or array.dtype.itemsize > 8:
        raise BadInput(f"{what} is {array.dtype}; give numbers of at most 64 bits")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def forms_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Form]:
    """The form of each array."""
    return {name: Form(array.shape, array.dtype.kind == "f") for name, array in arrays.items()}


def read_forms(path: Path) -> dict[str, Form]:
    """The form of each array in a file, from its header alone."""
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Form(tuple(one.get_shape()), "F" in one.get_dtype()) for name, one in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} cannot be read: {named(error)}; restore it, or delete its round") from error


def packed(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str] | None = None) -> bytes:
    """The arrays as the content of a safetensors file, with `notes` in its header."""
    return bytes(save(dict(arrays), metadata=dict(notes or {})))


def write(path: Path, content: bytes) -> None:
    """Write `content` to `path`, which the disk may not have yet."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise not_written(path, error) from error


def settle(path: Path) -> None:
    """Wait until the disk has a file's content, or a folder's names."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise not_written(path, error) from error


def replace_whole(path: Path, content: bytes) -> None:
    """Write `path` so that whoever reads it finds all of it, or what was there before."""
    partial = path.with_name(f".partial-{path.name}")
    try:
        write(partial, content)
        settle(partial)
        partial.replace(path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        partial.unlink(missing_ok=True)


def not_written(path: Path, error: OSError) -> Fault:
    """What a disk that is full, or fails, means for a record."""
    return Fault(
        f"{path} cannot be written ({error.strerror}); free some space: the record keeps what is whole"
    )
