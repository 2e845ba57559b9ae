"""What `glasshouse list` prints: every name with the sentence that its code opens with."""

import inspect
from collections.abc import Iterator

from glasshouse.attacks import ATTACKS
from glasshouse.data.registry import DATA
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
    "strategies": STRATEGIES,
    "channels": CHANNELS,
    "studies": STUDIES,
}


def listing(kind: str) -> Iterator[str]:
    """One line for each name of `kind`."""
    if kind not in REGISTRIES:
        raise BadInput(unknown("list", kind, REGISTRIES))
    registry = REGISTRIES[kind]
    width = max(map(len, registry))
    for name in registry:
        entry = registry.load(name)
        adversaries = ", ".join(access.adversary for access in getattr(entry, "needs", ()))
        summary = (inspect.getdoc(entry) or "").partition("\n\n")[0].replace("\n", " ")
        options = _options(entry) if inspect.isclass(entry) else ""
        yield f"{name:<{width}}  {f'[{adversaries}] ' if adversaries else ''}{summary}{options}"


def _options(entry: type) -> str:
    """The keyword-only parameters and their defaults, as one writes them: ` (fraction=0.7)`."""
    parameters = inspect.signature(entry).parameters.values()
    words = [f"{p.name}={p.default!r}" for p in parameters if p.kind is p.KEYWORD_ONLY]
    return f" ({', '.join(words)})" if words else ""
