"""Glasshouse in a Flower app: record what its server sees, screen, defend, vet, sum securely, train."""

import importlib
from typing import TYPE_CHECKING, Any

from glasshouse.errors import BadInput

if TYPE_CHECKING:
    from glasshouse.integrations.flower.clients import GlasshouseClient as GlasshouseClient
    from glasshouse.integrations.flower.masking import secure_mod as secure_mod
    from glasshouse.integrations.flower.mods import defence_mod as defence_mod
    from glasshouse.integrations.flower.mods import vet_mod as vet_mod
    from glasshouse.integrations.flower.recording import record as record
    from glasshouse.integrations.flower.screening import screen as screen
    from glasshouse.integrations.flower.strategies import GlasshouseStrategy as GlasshouseStrategy
    from glasshouse.integrations.flower.summing import SecureGrid as SecureGrid

try:
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as missing:
    raise BadInput(
        f"glasshouse.integrations.flower needs Flower 1.41 or later ({missing}); install it with: "
        "pip install 'glasshouse[flower]'"
    ) from None

_PLACES = {
    "GlasshouseClient": "clients",
    "GlasshouseStrategy": "strategies",
    "SecureGrid": "summing",
    "defence_mod": "mods",
    "record": "recording",
    "screen": "screening",
    "secure_mod": "masking",
    "vet_mod": "mods",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted(_PLACES)
