"""Weights in a file, put into the network that they were saved from, or into one with another last layer."""

from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshouse.models.files import OtherContent, check_names, fitting, read_named, some_of
from glasshouse.models.foreign import in_our_names
from glasshouse.models.heads import NewHead, head_elsewhere, size_of
from glasshouse.models.outputs import last_layer
from glasshouse.models.shapes import Shape


def read_weights(path: str | Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a `.safetensors`, `.pt` or `.pth` file of a state dict, by the names of the model's own.

    EfficientNet-B0 may have been saved by torchvision or timm, and of tied tensors one may stand for all.
    """
    saved = read_named(Path(path))
    if not saved.keys() & expected.keys():
        saved = in_our_names(saved)
    return dict(saved) | {
        name: saved[twin]
        for name, twins in _tied(expected).items()
        for twin in twins
        if name not in saved and twin in saved
    }


def load_weights(
    model: nn.Module, path: str | Path, *, sound: bool = True, optional: Collection[str] = ()
) -> Collection[str]:
    """Put the weights in `path`, a `.safetensors`, `.pt` or `.pth` file of a state dict, into `model`.

    The model is left as it was unless every tensor has its name and shape and, where they must be `sound`, is
    finite. Those of the `optional` ones that the file lacks stay as they are. Returns the names that it has.
    """
    path, expected = Path(path), model.state_dict()
    saved = read_weights(path, expected)
    _put(model, path, {name: expected[name] for name in optional} | saved, expected, sound)
    return saved.keys()


def load_but_head(model: nn.Module, path: str | Path, shape: Shape) -> NewHead | None:
    """The same for a network for images of `shape` whose last layer may have other classes than the file's.

    Such a layer, or one that the file lacks, keeps the weights that it has; and so does a head of other names
    or layers than the file's (`head_elsewhere`).
    """
    path, expected = Path(path), model.state_dict()
    saved = read_weights(path, expected)
    head = fit_but_head(model, path, saved, shape)
    kept = {} if head is None else {name: expected[name] for name in head.tensors}
    body = {name: tensor for name, tensor in saved.items() if name in expected or head is None}
    _put(model, path, body | kept, expected, sound=True)
    return head


def fit_but_head(model: nn.Module, path: Path, saved: Mapping[str, Tensor], shape: Shape) -> NewHead | None:
    """The head of `model` if the tensors `saved` fit all but that; null where they fit it, too."""
    expected = model.state_dict()
    misfits = [name for name, tensor in expected.items() if _misfit(saved.get(name), tensor)]
    misfits += [name for name in saved if name not in expected]
    if not misfits:
        return None
    layer = last_layer(model, shape)
    prefix = f"{layer}." if layer else ""
    tensors = tuple(name for name in expected if name.startswith(prefix))
    twins = _tied(expected)
    others = [name for name in misfits if not name.startswith(prefix)]
    elsewhere = bool(others) or any(name not in expected for name in misfits)
    head = head_elsewhere(saved, expected, layer) if elsewhere else None
    if head is not None and not any(name in twins for name in head.tensors):
        return head
    weight = f"{prefix}weight"
    if not layer or others or weight not in misfits or any(name in twins for name in tensors):
        raise _refusal(path, layer, others or misfits, saved, expected)
    size = size_of(expected[weight])
    why = f"does not fit the file's ({size_of(saved[weight])})" if weight in saved else "is not in the file"
    return NewHead((layer,), tensors, f"the last layer {layer} ({size}) {why}")


def _put(
    model: nn.Module, path: Path, saved: Mapping[str, Tensor], expected: Mapping[str, Tensor], sound: bool
) -> None:
    check_names(path, saved, expected)
    weights = {name: fitting(path, name, saved[name], tensor, sound) for name, tensor in expected.items()}
    for name, twins in _tied(expected).items():
        for twin in twins:
            if not torch.allclose(weights[name], weights[twin], rtol=0, atol=0, equal_nan=True):
                raise OtherContent(
                    f"weights {path}: {name} and {twin} differ, but the model ties them; "
                    "give the model that they were saved from"
                )
    model.load_state_dict(weights)


def _misfit(saved: Tensor | None, expected: Tensor) -> bool:
    return saved is None or saved.shape != expected.shape


def _refusal(
    path: Path, layer: str, names: list[str], saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> OtherContent:
    """Which tensors fit no part of the model but its last layer, the first of them with both shapes."""
    shown = [
        f"{name} ({size_of(saved.get(name))} in the file, {size_of(expected.get(name))} in the model)"
        for name in names
    ]
    return OtherContent(
        f"weights {path} do not fit the model: {some_of(shown)}; only its last layer, {layer}, may have "
        "another size: give the model, image shape and number of classes that they were saved from"
    )


def _tied(state: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """For each tensor that stands under several names its other names: files may hold it once."""
    return {
        name: twins
        for name, tensor in state.items()
        if (twins := [twin for twin, other in state.items() if twin != name and _same(tensor, other)])
    }


def _same(tensor: Tensor, other: Tensor) -> bool:
    return bool(tensor.numel()) and tensor.data_ptr() == other.data_ptr() and tensor.shape == other.shape
