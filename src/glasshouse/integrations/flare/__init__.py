"""NVIDIA FLARE: a recorder for its server, and filters for its clients."""

import importlib
from typing import TYPE_CHECKING, Any

from glasshouse.errors import BadInput

if TYPE_CHECKING:
    from glasshouse.integrations.flare.defending import DefendUpdate as DefendUpdate
    from glasshouse.integrations.flare.masking import MaskUpdates as MaskUpdates
    from glasshouse.integrations.flare.recording import RecordRounds as RecordRounds
    from glasshouse.integrations.flare.summing import SecureSum as SecureSum
    from glasshouse.integrations.flare.vetting import VetModel as VetModel

try:
    import nvflare  # noqa: F401
except ImportError as missing:
    raise BadInput(
        f"glasshouse.integrations.flare needs NVIDIA FLARE ({missing}); install it with: "
        "pip install 'glasshouse[nvflare]'"
    ) from None

_PLACES = {
    "DefendUpdate": "defending",
    "MaskUpdates": "masking",
    "RecordRounds": "recording",
    "SecureSum": "summing",
    "VetModel": "vetting",
}


def __getattr__(name: str) -> Any:
    """Import a component when it is first used: the server's needs no torch."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """The components, imported or not."""
    return sorted(_PLACES)
