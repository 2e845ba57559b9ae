"""A strategy with steps of ours around its own."""

from types import new_class
from typing import Any

import flwr.server.strategy
import flwr.serverapp.strategy

from glasshouse.errors import BadInput, quoted


def extended(strategy: Any, messages: type, fits: type, **attributes: Any) -> Any:
    """A copy of `strategy` with the methods of `messages`, or of `fits` for a legacy one, before its own.

    It is of the strategy's own class still, so that whatever overrides `start`, or asks for its attributes,
    works as before; the object that was given stays as it is.
    """
    steps = fits if is_legacy(strategy) else messages
    kind = type(strategy)
    twin: Any = object.__new__(new_class(kind.__name__, (steps, kind)))
    vars(twin).update(vars(strategy) | attributes)
    return twin


def is_legacy(strategy: Any) -> bool:
    """Whether `strategy` is one of flwr.server.strategy, and not of flwr.serverapp.strategy."""
    if isinstance(strategy, flwr.server.strategy.Strategy):
        return True
    if isinstance(strategy, flwr.serverapp.strategy.Strategy):
        return False
    raise BadInput(
        f"strategy = {quoted(strategy)} is no strategy of Flower; give one of flwr.serverapp.strategy, "
        "or a legacy one of flwr.server.strategy"
    )


def flower_name(strategy: Any) -> str:
    """The name of the Flower strategy that `strategy` is, or is derived from, in lower case."""
    kinds = [kind for kind in type(strategy).__mro__ if kind.__module__.startswith("flwr.")]
    return kinds[0].__name__.lower()
