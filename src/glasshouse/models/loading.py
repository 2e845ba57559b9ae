"""A user's model and weights, checked before anything is trained or attacked."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.models import build
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.registry import import_users

FORM = "package.module:factory"


def load_model(spec: str, shape: Shape, classes: int) -> nn.Module:
    """The network `spec` names, for images of `shape` (channels, height, width), giving (N, classes) logits.

    `spec` is a name of the zoo or a user's `package.module:factory`. Such a factory is called with those of
    `shape` and `classes` that it names, with both if it has two required arguments, else with none.
    """
    if ":" not in spec:
        if "." in spec:
            raise BadInput(f"model {spec!r} is not of the zoo; write your own as {FORM}")
        return build(spec, shape, classes)
    check_shape(shape)
    check_classes(classes)
    model = _call(_factory(spec), spec, shape, classes)
    if not isinstance(model, nn.Module):
        raise BadInput(f"model {spec!r}: the factory gave {type(model).__name__}; return a torch.nn.Module")
    check_output(model, spec, shape, classes)
    return model


def seeded_model(
    spec: str,
    shape: Shape,
    classes: int,
    seed: int,
    initialise: Callable[[nn.Module], None] = lambda model: None,
) -> nn.Module:
    """The network called `spec` with first weights drawn from `seed`; `initialise` may draw others for it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = load_model(spec, shape, classes)
        initialise(model)
    return model


def reinitialised(model: nn.Module, seed: int) -> nn.Module:
    """A copy of `model` whose layers drew their first weights anew, from `seed`."""
    fresh = deepcopy(model)
    layers = [layer for layer in fresh.modules() if callable(getattr(layer, "reset_parameters", None))]
    drawn = {id(parameter) for layer in layers for parameter in layer.parameters()}
    missing = [name for name, parameter in fresh.named_parameters() if id(parameter) not in drawn]
    if missing:
        raise BadInput(
            f"{type(model).__name__}: no layer can draw {missing[0]} anew, which shadow models need; "
            f"give the model as {FORM}, or its layer a method reset_parameters"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in layers:
            layer.reset_parameters()  # type: ignore[operator]
    return fresh


def load_weights(model: nn.Module, path: str | Path, *, sound: bool = True) -> None:
    """Put the weights in `path`, a `.safetensors`, `.pt` or `.pth` file of a state dict, into `model`.

    The model is left as it was unless every tensor has its name and shape and, where they must be `sound`, is
    finite.
    """
    path = Path(path)
    saved = _read(path)
    expected = model.state_dict()
    _check_names(path, saved, expected)
    weights = {name: _fitting(path, name, saved[name], tensor, sound) for name, tensor in expected.items()}
    model.load_state_dict(weights)


def _factory(spec: str) -> Callable[..., Any]:
    module, _, attribute = spec.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise BadInput(f"model {spec!r} cannot be imported; write your own as {FORM}")
    target = import_users(spec, "model")
    if not callable(target) or isinstance(target, nn.Module):
        raise BadInput(
            f"model {spec!r} is {type(target).__name__}, not a factory; give a function that returns a model"
        )
    factory: Callable[..., Any] = target
    return factory


def _call(factory: Callable[..., Any], spec: str, shape: Shape, classes: int) -> Any:
    """What the factory returns, given the arguments it asks for."""
    try:
        signature = inspect.signature(factory)
    except ValueError as error:
        raise BadInput(f"model {spec!r}: {_named(error)}; give a Python function") from error
    offered = {"shape": shape, "classes": classes}
    named = {name: value for name, value in offered.items() if name in signature.parameters}
    for positional, keywords in (((), named), ((shape, classes), {})):
        try:
            signature.bind(*positional, **keywords)
        except TypeError:
            continue
        try:
            return factory(*positional, **keywords)
        except Exception as error:
            raise BadInput(f"model {spec!r}: the factory failed with {_named(error)}; repair it") from error
    raise BadInput(f"model {spec!r} has signature {signature}; take (shape, classes) or no arguments")


def check_output(model: nn.Module, spec: str, shape: Shape, classes: int) -> None:
    """Refuse a model that does not turn black images into rows of finite logits, or cannot be trained."""
    copy = deepcopy(model)
    _check_pass(copy.eval(), spec, shape, classes, 2)
    if not any(parameter.requires_grad for parameter in copy.parameters()):
        raise BadInput(f"model {spec!r} has no parameters to train; give it some, or unfreeze them")
    for count in (2, 3):
        _check_pass(copy.train(), spec, shape, classes, count)


def _check_pass(model: nn.Module, spec: str, shape: Shape, classes: int, count: int) -> None:
    """Check the outputs for `count` black images and, in training, that they carry gradients."""
    try:
        logits = model(torch.zeros(count, *shape))
    except Exception as error:
        raise BadInput(
            f"model {spec!r} cannot take a batch of shape {(count, *shape)}: {_named(error)}; "
            "let its factory take (shape, classes) and build to that"
        ) from error
    if not isinstance(logits, Tensor):
        raise BadInput(f"model {spec!r} returns {type(logits).__name__}; return the logits as one tensor")
    if logits.shape != (count, classes):
        raise BadInput(
            f"model {spec!r} returns shape {tuple(logits.shape)} for {count} images of {classes} classes; "
            f"return logits of shape {(count, classes)}"
        )
    if not logits.isfinite().all():
        raise BadInput(f"model {spec!r} returns NaN or infinite logits for black images; check its weights")
    if model.training and not logits.requires_grad:
        raise BadInput(f"model {spec!r} returns logits without a gradient; do not detach them")


def _read(path: Path) -> Mapping[str, Tensor]:
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
        raise BadInput(f"weights {path} cannot be read: {_named(error)}; check the file") from error
    if not isinstance(saved, Mapping) or not all(_is_named_tensor(*item) for item in saved.items()):
        held = _first([str(name) for name in saved]) if isinstance(saved, Mapping) else type(saved).__name__
        raise BadInput(f"weights {path} hold {held}, not named tensors alone; save only model.state_dict()")
    return saved


def _read_safetensors(path: Path) -> Any:
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise BadInput(
            f"weights {path} are not safetensors: {_named(error)}; save them with safetensors.torch.save_file"
        ) from error


def _read_torch(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle versions; what it refuses, it raises
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # over a damaged file torch raises errors of many kinds
        raise BadInput(
            f"weights {path} are damaged or hold more than tensors, and loading them could run code; "
            "save model.state_dict() alone, best as .safetensors"
        ) from error


def _check_names(path: Path, saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    missing, unexpected = sorted(expected.keys() - saved.keys()), sorted(saved.keys() - expected.keys())
    if missing or unexpected:
        kinds = (("lack", missing), ("have extra", unexpected))
        faults = [f"{fault} {_first(names)}" for fault, names in kinds if names]
        raise BadInput(f"weights {path} {' and '.join(faults)}; give the model that they were saved from")


def _fitting(path: Path, name: str, saved: Tensor, expected: Tensor, sound: bool) -> Tensor:
    """`saved` in the type of `expected`, if it has its shape and kind."""
    if saved.shape != expected.shape:
        raise BadInput(
            f"weights {path}: {name} has shape {tuple(saved.shape)}, in the model {tuple(expected.shape)}; "
            "give the model, image shape and number of classes that they were saved from"
        )
    if saved.is_floating_point() != expected.is_floating_point() or saved.is_complex():
        raise BadInput(f"weights {path}: {name} is {saved.dtype}; save it as {expected.dtype}")
    converted = saved.to(expected.dtype)
    if sound and not converted.isfinite().all():
        raise BadInput(f"weights {path}: {name} has NaN or infinite values; give weights of a sound run")
    return converted


def _is_named_tensor(name: Any, value: Any) -> bool:
    dense = isinstance(value, Tensor) and value.layout is torch.strided and not value.is_meta
    return dense and isinstance(name, str)


def _first(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name if name.isprintable() else repr(name) for name in names[:3]) + more


def _named(error: Exception) -> str:
    """The error's type and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
