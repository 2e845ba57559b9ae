"""A user's model and weights, checked before anything is trained or attacked."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import torch
from torch import nn

from glasshouse.errors import BadInput, named, quoted
from glasshouse.models import build
from glasshouse.models.checking import check_alike, check_travels, checked_copy, make_classifier
from glasshouse.models.factories import made
from glasshouse.models.freezing import exchanged
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.models.signature import FORM
from glasshouse.models.weights import load_weights

__all__ = ["checked_copy", "load_model", "load_weights", "reinitialised", "seeded_model"]


def load_model(spec: str, shape: Shape, classes: int) -> nn.Module:
    """The network `spec` names, for images of `shape` (channels, height, width), giving (N, classes) logits.

    `spec` is a name of the zoo or a user's `package.module:factory`, with options if it takes any. Such a
    factory is called with those of `shape` and `classes` that it names, with both if it has two required
    arguments, else with none, and with the options.
    """
    if not users_own(spec):
        return build(spec, shape, classes)
    check_shape(shape)
    check_classes(classes)
    model = made(spec, shape, classes)
    make_classifier(model, spec, shape, classes)
    return model


def users_own(spec: str) -> bool:
    """Whether `spec` names a factory of the user's."""
    return ":" in spec.partition("(")[0]


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
    if users_own(spec):
        if like is None:
            check_travels(model, spec)
            with _seeded(seed + 1):
                like = made(spec, shape, classes)
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
    missing = [name for name, parameter in exchanged(fresh).items() if id(parameter) not in drawn]
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
