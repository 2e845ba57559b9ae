"""Calling a user's factory of models: with the image shape and classes it asks for, and its options."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from glasshouse.errors import BadInput, named, quoted
from glasshouse.models.shapes import Shape
from glasshouse.models.signature import check_options
from glasshouse.registry import import_users, parse_spec


def made(spec: str, shape: Shape, classes: int) -> nn.Module:
    """What the user's factory makes, which is called and nothing else is."""
    name, options = parse_spec(spec, "model")
    factory = import_users(name, "model")
    network = isinstance(factory, type) and issubclass(factory, nn.Module)
    if not network and not inspect.isfunction(factory):
        raise BadInput(
            f"model {quoted(spec)} is {type(factory).__name__}, not a factory; "
            "give a function that returns a model, or a class of torch.nn.Module"
        )
    model = _call(factory, spec, shape, classes, options)
    if not isinstance(model, nn.Module):
        raise BadInput(
            f"model {quoted(spec)}: the factory gave {type(model).__name__}; return a torch.nn.Module"
        )
    return model


def _call(factory: Callable[..., Any], spec: str, shape: Shape, classes: int, options: dict[str, Any]) -> Any:
    """What the factory returns, given the arguments it asks for and its options."""
    try:
        signature = inspect.signature(factory)
    except (ValueError, TypeError) as error:
        raise BadInput(f"model {quoted(spec)}: {named(error)}; give a Python function") from error
    check_options(spec, options, signature)
    offered = {"shape": shape, "classes": classes}
    asked = {name: value for name, value in offered.items() if name in signature.parameters}
    for positional, keywords in (((), asked), ((shape, classes), {})):
        try:
            signature.bind(*positional, **keywords, **options)
        except TypeError:
            continue
        try:
            return factory(*positional, **keywords, **options)
        except BadInput:
            raise
        except (Exception, SystemExit) as error:
            raise BadInput(
                f"model {quoted(spec)}: the factory failed with {named(error)}; repair it"
            ) from error
    raise BadInput(
        f"model {quoted(spec)} has signature {signature}; take (shape, classes) or no arguments, "
        "and the rest as options: my_models:create(width=8)"
    )
