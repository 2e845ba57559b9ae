"""Fill docs/api.md, the reference of what can be imported, from the signatures and docstrings of the source.

python docs/api.py
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import glasshouse
from glasshouse import access

PAGE = Path(__file__).parent / "api.md"

BASES = {
    "glasshouse.attacks.attack": ("Attack", "Knowledge"),
    "glasshouse.defences.defence": ("Defence",),
    "glasshouse.federation.strategies.strategy": ("Strategy",),
    "glasshouse.evidence.evidence": ("Evidence",),
    "glasshouse.studies.study": ("Study", "Cell"),
    "glasshouse.learning.recipe": ("Recipe",),
}
"""What one derives from, or hands over, to bring something of one's own."""

RECORDING = {"glasshouse.recording": ("Seen",)}
"""What `Recorder.round` gives."""

VERDICTS = {
    "glasshouse.verdicts.pooling": ("pooled",),
    "glasshouse.verdicts.decision": ("decide",),
    "glasshouse.verdicts.limits": ("read_limits",),
}


def reference() -> str:
    """The whole reference, as markdown."""
    public = {"glasshouse": dir(glasshouse)}
    kinds = [
        kind.__name__
        for kind in vars(access).values()
        if inspect.isclass(kind) and issubclass(kind, access.Access) and kind is not access.Access
    ]
    sections = {
        "What every user needs": public,
        "To record rounds": RECORDING,
        "To bring something of your own": BASES,
        "What an attack receives": {"glasshouse.access": kinds},
        "What findings say": VERDICTS,
    }
    return "\n\n".join(part for title, places in sections.items() for part in _section(title, places))


def _section(title: str, places: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}"
    for module, names in places.items():
        for name in names:
            yield from _entry(module, name, getattr(importlib.import_module(module), name))


def _entry(module: str, name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}"
    yield f"```text\nfrom {module} import {name}\n\n{name}{_signature(thing)}\n```"
    yield _text(thing)
    if inspect.isclass(thing):
        rows = [
            f"| `{member}{_cell(_signature(value)) if callable(value) else ''}` | {_cell(_first(value))} |"
            for member, value in _members(thing)
        ]
        if rows:
            yield "\n".join(["| has | what it is |", "| --- | --- |", *rows])


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that it defines itself and describes."""
    for name, value in vars(kind).items():
        method = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        described = isinstance(method, property) or inspect.isfunction(method)
        if not name.startswith("_") and described and inspect.getdoc(method):
            yield name, method


def _signature(thing: Any) -> str:
    """Its arguments as one writes them; a configuration's keys have a page of their own."""
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        return "(**tables)"
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    words, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        if parameter.name != "self":
            words.append(_parameter(parameter))
    return f"({', '.join(words)})"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = parameter.annotation
    shown = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    shown = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(\w+)", r"\1", shown)
    told = "" if kind is parameter.empty else f": {shown}"
    default = "..." if "<" in repr(parameter.default) else repr(parameter.default)
    return f"{stars}{parameter.name}{told}" + (
        "" if parameter.default is parameter.empty else f" = {default}"
    )


def _text(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n>>> ")[0].strip()


def _first(thing: Any) -> str:
    return _text(thing).partition("\n\n")[0].replace("\n", " ")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """The page as it should be."""
    return (
        "# Reference\n\nMade from the source by `python docs/api.py`. What a task takes is told in "
        "[the other pages](index.md); this one has every name with its arguments.\n\n" + reference() + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
