"""Files of named tensors: weights and updates, read without running anything that lies in them."""

import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from glasshouse.errors import BadInput, named
from glasshouse.models.pickles import code_in, is_packed

REMEDY = "save model.state_dict() alone, best as .safetensors"


class OtherContent(BadInput):
    """The file was read, and holds something else than the tensors of the model that was named."""


def read_named(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a `.safetensors`, `.pt` or `.pth` file, by name."""
    readers: dict[str, Callable[[Path], Any]] = {
        ".safetensors": _read_safetensors,
        ".pt": _read_torch,
        ".pth": _read_torch,
    }
    if path.suffix not in readers:
        raise BadInput(f"weights {path}: unknown suffix {path.suffix!r}; save them as {', '.join(readers)}")
    if not path.is_file():
        raise BadInput(f"weights {path}: no such file; check the path")
    try:
        saved = readers[path.suffix](path)
    except OSError as error:
        raise BadInput(f"weights {path} cannot be read: {named(error)}; check the file") from error
    if not isinstance(saved, Mapping) or not all(_is_named_tensor(*item) for item in saved.items()):
        mapping = isinstance(saved, Mapping)
        held = some_of([str(name) for name in saved]) if mapping else type(saved).__name__
        raise OtherContent(
            f"weights {path} hold {held}, not named tensors alone; save only model.state_dict()"
        )
    return saved


def read_notes(path: Path) -> Mapping[str, str]:
    """What the header of a `.safetensors` file says beside its tensors; nothing for files of other kinds."""
    if path.suffix != ".safetensors":
        return {}
    with safetensors.safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def check_names(
    path: Path, saved: Collection[str], expected: Collection[str], optional: Collection[str] = ()
) -> None:
    """Refuse a file that lacks a name it should have, or has one beside them and the `optional` ones."""
    missing = sorted({*expected} - {*saved} - {*optional})
    unexpected = sorted({*saved} - {*expected} - {*optional})
    if missing or unexpected:
        kinds = (("lack", missing), ("have extra", unexpected))
        faults = [f"{fault} {some_of(names)}" for fault, names in kinds if names]
        raise OtherContent(f"weights {path} {' and '.join(faults)}; give the model that they were saved from")


def fitting(path: Path, name: str, saved: Tensor, expected: Tensor, sound: bool) -> Tensor:
    """`saved` in the type of `expected`, if it has its shape and kind."""
    if saved.shape != expected.shape:
        raise OtherContent(
            f"weights {path}: {name} has shape {tuple(saved.shape)}, in the model {tuple(expected.shape)}; "
            "give the model, image shape and number of classes that they were saved from"
        )
    if saved.is_floating_point() != expected.is_floating_point() or saved.is_complex():
        raise OtherContent(f"weights {path}: {name} is {saved.dtype}; save it as {expected.dtype}")
    converted = saved.to(expected.dtype)
    if sound and not converted.isfinite().all():
        raise BadInput(f"weights {path}: {name} has NaN or infinite values; give weights of a sound run")
    return converted


def some_of(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name if name.isprintable() else repr(name) for name in names[:3]) + more


def _read_safetensors(path: Path) -> Any:
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise BadInput(
            f"weights {path} are not safetensors: {named(error)}; save them with safetensors.torch.save_file"
        ) from error


def _read_torch(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle versions; what it refuses, it raises
            if is_packed(path):
                raise OtherContent(f"weights {path} are packed, as torch packs none; {REMEDY}")
            return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, OtherContent):
        raise
    except Exception as error:  # over a damaged file torch raises errors of many kinds
        if (found := code_in(path)) is not None:
            raise OtherContent(f"weights {path} hold {found}; {REMEDY}") from error
        raise BadInput(f"weights {path} are damaged, or no weights; {REMEDY}") from error


def _is_named_tensor(name: Any, value: Any) -> bool:
    if not isinstance(value, Tensor) or value.is_nested or value.is_quantized:
        return False
    return value.layout is torch.strided and not value.is_meta and isinstance(name, str)
