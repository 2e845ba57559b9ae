"""Glasshouse in a Flower app: record what its server sees, and screen what clients send."""

import importlib
from typing import TYPE_CHECKING, Any

from glasshouse.errors import BadInput

if TYPE_CHECKING:
    from glasshouse.integrations.flower.recording import record as record
    from glasshouse.integrations.flower.screening import screen as screen

try:
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as missing:
    raise BadInput(
        f"glasshouse.integrations.flower needs Flower 1.41 or later ({missing}); install it with: "
        "pip install 'glasshouse[flower]'"
    ) from None

_PLACES = {"record": "recording", "screen": "screening"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted(_PLACES)
