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

_PLACES = {
    "DefendUpdate": "defending",
    "MaskUpdates": "masking",
    "RecordRounds": "recording",
    "SecureSum": "summing",
    "VetModel": "vetting",
}


def __getattr__(name: str) -> Any:
    """Import a component when it is first used: a server that records needs no torch."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_PLACES[name]}")
    except ImportError as missing:
        if not str(missing.name).startswith("nvflare"):
            raise
        raise BadInput(
            f"glasshouse.integrations.flare needs NVIDIA FLARE ({missing}); install it with: "
            "pip install 'glasshouse[nvflare]'"
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    """The components, imported or not."""
    return sorted(_PLACES)
