"""What `glasshouse list` prints: every name with the sentence that its code opens with."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from glasshouse.attacks import ATTACKS
from glasshouse.data.registry import DATA, PARTITIONS
from glasshouse.defences import DEFENCES
from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.models.registry import MODELS
from glasshouse.registry import Registry, unknown
from glasshouse.studies import STUDIES

REGISTRIES: dict[str, Registry] = {
    "attacks": ATTACKS,
    "defences": DEFENCES,
    "models": MODELS,
    "data": DATA,
    "partitions": PARTITIONS,
    "strategies": STRATEGIES,
    "channels": CHANNELS,
    "studies": STUDIES,
}


SHOWN = 5
"""As many names of a kind stand for all of them."""

ADVERSARIES = "adversaries"
"""Listed too, and named nowhere: an attack says which access it needs."""


def kinds() -> Iterator[str]:
    """One line for each kind of name that can be listed."""
    for kind, registry in REGISTRIES.items():
        names = list(registry)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield f"glasshouse list {kind:<12} {', '.join(names[:SHOWN])}{more}"
    yield f"glasshouse list {ADVERSARIES:<12} who could attack, and what each can touch"


def listing(kind: str) -> Iterator[str]:
    """One line for each name of `kind`."""
    if kind == ADVERSARIES:
        return _adversaries()
    if kind not in REGISTRIES:
        raise BadInput(unknown("list", kind, [*REGISTRIES, ADVERSARIES]))
    return _named(REGISTRIES[kind])


def _named(registry: Registry) -> Iterator[str]:
    width = max(map(len, registry))
    for name in registry:
        entry = registry.load(name)
        adversaries = ", ".join(access.adversary for access in getattr(entry, "needs", ()))
        told = f" ({', '.join(options(entry))})" if options(entry) else ""
        yield f"{name:<{width}}  {f'[{adversaries}] ' if adversaries else ''}{summary(entry)}{told}"


def _adversaries() -> Iterator[str]:
    """Every adversary, with the access objects through which it sees anything."""
    from glasshouse import access  # it imports torch, which no other list needs

    found = [
        one
        for one in vars(access).values()
        if inspect.isclass(one) and issubclass(one, access.Access) and one is not access.Access
    ]
    width = max(len(one.adversary) for one in found)
    for one in found:
        yield f"{one.adversary:<{width}}  [{one.__name__}] {summary(one)}"


def summary(entry: Any) -> str:
    """The sentence that its docstring opens with."""
    return (inspect.getdoc(entry) or "").partition("\n\n")[0].replace("\n", " ")


def options(entry: Callable[..., Any]) -> list[str]:
    """Its optional keywords with their defaults, as one writes them: `fraction=0.7`."""
    parameters = inspect.signature(entry).parameters.values()
    optional = [p for p in parameters if p.kind is p.KEYWORD_ONLY or p.default is not p.empty]
    return [f"{p.name}={p.default!r}" for p in optional]
