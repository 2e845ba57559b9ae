"""The options that a factory of models takes, seen in its source before it, or torch, is imported."""

import ast
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from glasshouse.errors import BadInput, quoted
from glasshouse.models.registry import MODELS
from glasshouse.reading import read_file
from glasshouse.registry import parse_spec, unknown

FORM = "package.module:factory"

GIVEN = ("shape", "classes")
"""What follows from the data, and is no option."""

LONGEST_SOURCE = 1_000_000
"""Bytes of a module that is looked into."""


def check_named(spec: str) -> None:
    """Refuse a model that the zoo does not have, and options that its factory does not take.

    Where the source does not tell, as for a factory with a decorator, that is left to whoever calls it.
    """
    name, options = parse_spec(spec, "model")
    if ":" not in name and name not in MODELS.places:
        raise unknown_model(name)
    signature = _written(MODELS.places.get(name, name)) if options else None
    if signature is not None:
        check_options(spec, options, signature)


def unknown_model(name: str) -> BadInput:
    """The refusal of a name that is neither of the zoo nor of the form of a user's own."""
    if "." in name:
        return BadInput(f"model {name!r} is not of the zoo; write your own as {FORM}")
    return BadInput(unknown("model", name, MODELS.places))


def check_options(spec: str, options: Mapping[str, Any], signature: Signature) -> None:
    """Refuse options that a factory with this `signature` does not take."""
    parameters = signature.parameters.values()
    given = next((option for option in options if option in GIVEN), None)
    if given is not None:
        raise BadInput(f"model {quoted(spec)}: {given} follows from the data; leave it out")
    named = [p for p in parameters if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
    if any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        return
    refused = next((option for option in options if option not in [p.name for p in named]), None)
    if refused is not None:
        optional = [p for p in named if p.default is not Parameter.empty or p.kind is Parameter.KEYWORD_ONLY]
        taken = ", ".join(p.name for p in optional if p.name not in GIVEN)
        raise BadInput(f"model {quoted(spec)} takes no option {refused!r}; it takes {taken or 'none'}")


def _written(place: str) -> Signature | None:
    """The signature that the source has for the function or class at `place`; null where it does not tell."""
    module, _, name = place.partition(":")
    file = _file(module)
    if file is None:
        return None
    try:
        tree = ast.parse(read_file(file, LONGEST_SOURCE))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    found: ast.stmt | None = next((node for node in tree.body if getattr(node, "name", None) == name), None)
    bound = isinstance(found, ast.ClassDef)
    if isinstance(found, ast.ClassDef):
        found = next((node for node in found.body if getattr(node, "name", None) == "__init__"), None)
    if not isinstance(found, ast.FunctionDef) or found.decorator_list:
        return None
    return _signature(found.args, skip=int(bound))


def _file(module: str) -> Path | None:
    """Where the source of `module` lies, found without importing the packages that it lies in."""
    path: list[str] | None = ["", *sys.path]
    spec = None
    parts = module.split(".")
    for place in range(len(parts)):
        if path is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[: place + 1]), path)
        path = None if spec is None else spec.submodule_search_locations
    origin = None if spec is None else spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None


def _signature(arguments: ast.arguments, skip: int) -> Signature:
    """That of a function with these arguments, without the first `skip` of them."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    parameters = [
        Parameter(
            one.arg,
            Parameter.POSITIONAL_ONLY if one in arguments.posonlyargs else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if place < required else None,
        )
        for place, one in enumerate(positional)
    ][skip:]
    if arguments.vararg:
        parameters.append(Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL))
    parameters += [
        Parameter(one.arg, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is None else None)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults)
    ]
    if arguments.kwarg:
        parameters.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    return Signature(parameters)
