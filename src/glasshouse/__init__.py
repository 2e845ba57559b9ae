"""Glasshouse measures what a federated model gives away."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glasshouse.api import audit as audit
    from glasshouse.api import audit_record as audit_record
    from glasshouse.api import compare as compare
    from glasshouse.api import inspect_update as inspect_update
    from glasshouse.api import plan as plan
    from glasshouse.api import plan_of_record as plan_of_record
    from glasshouse.api import read_results as read_results
    from glasshouse.api import search_policy as search_policy
    from glasshouse.api import study as study
    from glasshouse.auditing.setting import Setting as Setting
    from glasshouse.data.dataset import Dataset as Dataset
    from glasshouse.data.images import Images as Images
    from glasshouse.data.split import Split as Split
    from glasshouse.errors import BadInput as BadInput
    from glasshouse.findings import Finding as Finding
    from glasshouse.recording.writer import Recorder as Recorder
    from glasshouse.vetting.signs import Sign as Sign
    from glasshouse.vetting.vet import Vetting as Vetting
    from glasshouse.vetting.vet import vet as vet

_PLACES = {
    "audit": "glasshouse.api",
    "audit_record": "glasshouse.api",
    "compare": "glasshouse.api",
    "inspect_update": "glasshouse.api",
    "read_results": "glasshouse.api",
    "plan": "glasshouse.api",
    "plan_of_record": "glasshouse.api",
    "search_policy": "glasshouse.api",
    "study": "glasshouse.api",
    "Setting": "glasshouse.auditing.setting",
    "Dataset": "glasshouse.data.dataset",
    "Images": "glasshouse.data.images",
    "Split": "glasshouse.data.split",
    "BadInput": "glasshouse.errors",
    "Finding": "glasshouse.findings",
    "Recorder": "glasshouse.recording.writer",
    "Sign": "glasshouse.vetting.signs",
    "Vetting": "glasshouse.vetting.vet",
    "vet": "glasshouse.vetting.vet",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used, so that `glasshouse --help` answers at once."""
    if name not in _PLACES:
        raise AttributeError(f"module 'glasshouse' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted(_PLACES)
