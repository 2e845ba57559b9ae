"""A user's model and weights, checked before anything is trained or attacked."""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput, named, quoted
from glasshouse.models import build
from glasshouse.models.checking import check_alike, check_answers, check_output, check_travels
from glasshouse.models.files import check_names, fitting, read_named
from glasshouse.models.foreign import in_our_names
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.registry import import_users

__all__ = ["check_output", "load_model", "load_weights", "reinitialised", "seeded_model"]

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
    model = _made(spec, shape, classes)
    check_answers(model, spec, shape, classes)
    return model


def seeded_model(
    spec: str,
    shape: Shape,
    classes: int,
    seed: int,
    initialise: Callable[[nn.Module], None] = lambda model: None,
    *,
    like: nn.Module | None = None,
) -> nn.Module:
    """The network called `spec` with first weights drawn from `seed`; `initialise` may draw others for it.

    A user's factory has to give the same architecture at every call: that of `like`, where it was called
    before.
    """
    with _seeded(seed):
        model = load_model(spec, shape, classes)
        initialise(model)
    if ":" in spec:
        if like is None:
            check_travels(model, spec)
            with _seeded(seed + 1):
                like = _made(spec, shape, classes)
        check_alike(model, like, f"model {quoted(spec)}: what another call of the factory gives")
    return model


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from `seed`, whichever generator is drawn from, and leave all of them as they were."""
    before, of_arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(of_arrays)


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
    with _seeded(seed):
        for layer in layers:
            try:
                layer.reset_parameters()  # type: ignore[operator]
            except (Exception, SystemExit) as error:
                raise BadInput(
                    f"{type(layer).__name__}.reset_parameters failed with {named(error)}; repair it"
                ) from error
    return fresh


def load_weights(model: nn.Module, path: str | Path, *, sound: bool = True) -> None:
    """Put the weights in `path`, a `.safetensors`, `.pt` or `.pth` file of a state dict, into `model`.

    The model is left as it was unless every tensor has its name and shape and, where they must be `sound`, is
    finite. EfficientNet-B0 may have been saved by torchvision or timm.
    """
    path = Path(path)
    saved = read_named(path)
    expected = model.state_dict()
    if not saved.keys() & expected.keys():
        saved = in_our_names(saved)
    tied = _tied(expected)
    saved = dict(saved) | {
        name: saved[twin]
        for name, twins in tied.items()
        for twin in twins
        if name not in saved and twin in saved
    }
    check_names(path, saved, expected)
    weights = {name: fitting(path, name, saved[name], tensor, sound) for name, tensor in expected.items()}
    for name, twins in tied.items():
        for twin in twins:
            if not torch.allclose(weights[name], weights[twin], rtol=0, atol=0, equal_nan=True):
                raise BadInput(
                    f"weights {path}: {name} and {twin} differ, but the model ties them; "
                    "give the model that they were saved from"
                )
    model.load_state_dict(weights)


def _tied(state: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """For each tensor that stands under several names its other names: files may hold it once."""
    return {
        name: twins
        for name, tensor in state.items()
        if (twins := [twin for twin, other in state.items() if twin != name and _same(tensor, other)])
    }


def _same(tensor: Tensor, other: Tensor) -> bool:
    return bool(tensor.numel()) and tensor.data_ptr() == other.data_ptr() and tensor.shape == other.shape


def _made(spec: str, shape: Shape, classes: int) -> nn.Module:
    """What the user's factory makes, which is called and nothing else is."""
    factory = import_users(spec, "model")
    network = isinstance(factory, type) and issubclass(factory, nn.Module)
    if not network and not inspect.isfunction(factory):
        raise BadInput(
            f"model {quoted(spec)} is {type(factory).__name__}, not a factory; "
            "give a function that returns a model, or a class of torch.nn.Module"
        )
    model = _call(factory, spec, shape, classes)
    if not isinstance(model, nn.Module):
        raise BadInput(
            f"model {quoted(spec)}: the factory gave {type(model).__name__}; return a torch.nn.Module"
        )
    return model


def _call(factory: Callable[..., Any], spec: str, shape: Shape, classes: int) -> Any:
    """What the factory returns, given the arguments it asks for."""
    try:
        signature = inspect.signature(factory)
    except (ValueError, TypeError) as error:
        raise BadInput(f"model {quoted(spec)}: {named(error)}; give a Python function") from error
    offered = {"shape": shape, "classes": classes}
    asked = {name: value for name, value in offered.items() if name in signature.parameters}
    for positional, keywords in (((), asked), ((shape, classes), {})):
        try:
            signature.bind(*positional, **keywords)
        except TypeError:
            continue
        try:
            return factory(*positional, **keywords)
        except (Exception, SystemExit) as error:
            raise BadInput(
                f"model {quoted(spec)}: the factory failed with {named(error)}; repair it"
            ) from error
    raise BadInput(f"model {quoted(spec)} has signature {signature}; take (shape, classes) or no arguments")
