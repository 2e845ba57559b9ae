"""Load the data that a user names: a known set, a folder, an .npz file, a function or a set of the hub."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glasshouse.data.arrays import from_arrays, from_mapping, read_npz
from glasshouse.data.dataset import Dataset
from glasshouse.data.fetching import fetch
from glasshouse.data.formats import first_line
from glasshouse.data.hub import load_hub
from glasshouse.data.images import Images, checked
from glasshouse.data.pictures import read_folder
from glasshouse.data.registry import DATA
from glasshouse.errors import BadInput, named
from glasshouse.registry import import_function, unknown

__all__ = ["Dataset", "as_dataset", "fetch", "load"]

FUNCTION = re.compile(r"[\w.]+:\w+")


def load(spec: str, *, every_class: bool = True) -> Dataset:
    """Load and check a data set: see docs/data.md for what `spec` may be.

    A name, a folder of images by class, a path ending in .npz, `package.module:function` or `hf:owner/name`.
    What one client holds of such a set need not have images of `every_class`.
    """
    try:
        if spec in DATA.places:
            dataset: Dataset = DATA.load(spec)()
            return dataset
        if spec.startswith("hf:"):
            return load_hub(spec.removeprefix("hf:"))
        if spec.endswith(".npz"):
            return read_npz(_at_home(spec), every_class=every_class)
        if spec and _at_home(spec).is_dir():
            return read_folder(_at_home(spec), every_class=every_class)
        if FUNCTION.fullmatch(spec):
            return _from_function(spec, every_class)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"data {spec!r} cannot be read: {first_line(error)}; check the file and its rights"
        ) from error
    except MemoryError as error:
        raise BadInput(f"data {spec!r} do not fit into memory; give fewer or smaller images") from error
    if "/" in spec or (spec and Path(spec).exists()):
        raise BadInput(f"data {spec!r}: not a folder; give a folder of images by class, or an .npz file")
    raise BadInput(f"{unknown(DATA.kind, spec, DATA)} (or a folder, an .npz file or package.module:function)")


def _at_home(spec: str) -> Path:
    """The path with `~` filled in, where somebody of that name is there."""
    try:
        return Path(spec).expanduser()
    except RuntimeError:
        return Path(spec)


def _from_function(spec: str, every_class: bool) -> Dataset:
    function = import_function(spec, "data")
    source = f"data {spec!r}"
    try:
        returned = function()
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        raise BadInput(f"{source} failed with {named(error)}; call it yourself to see where") from error
    return as_dataset(spec, returned, source, every_class=every_class)


def as_dataset(name: str, data: Any, source: str, *, every_class: bool = True) -> Dataset:
    """A checked data set from what a user hands over: a Dataset, Images, arrays (x, y), or two of those.

    Or arrays by the names that they have in an .npz file.
    """
    if isinstance(data, Mapping):
        return from_mapping(name, data, source, every_class=every_class)
    if isinstance(data, Images):
        data = Dataset(name, data)
    elif _is_pair(data) and all(isinstance(part, Images) for part in data):
        data = Dataset(name, *data)
    if isinstance(data, Dataset) and isinstance(data.train, Images):
        checked(data.train, source, every_class=every_class)
        if data.test is not None:
            checked(data.test, f"{source} (test images)", every_class=False)
        return data
    if _is_pair(data) and all(_is_pair(part) for part in data):
        return from_arrays(name, data[0], data[1], source=source, every_class=every_class)
    if _is_pair(data):
        return from_arrays(name, data, source=source, every_class=every_class)
    raise BadInput(
        f"{source} returned a {type(data).__name__}; "
        "it must return (x, y), ((x, y), (x_test, y_test)), a dictionary of arrays, Images or a Dataset"
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2
