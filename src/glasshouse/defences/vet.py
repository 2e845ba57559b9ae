"""Refusing to train a model that looks crafted."""

from dataclasses import dataclass, field

from torch import nn

from glasshouse.defences.defence import Defence
from glasshouse.vetting.vet import digest, vet


@dataclass(frozen=True, kw_only=True)
class Vet(Defence):
    """Looks at each received model as `glasshouse vet` does and refuses to train a crafted one.

    It judges each model alone, without earlier models and without asking other clients.
    """

    _judged: dict[tuple[object, ...], str | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def on_receive(self, model: nn.Module, shape: tuple[int, int, int]) -> str | None:
        key = (digest(model), shape, str(model))
        if key not in self._judged:
            # The clients of a round mostly receive the same model, so one verdict serves them all.
            self._judged.clear()
            alarming = [sign for sign in vet(model, shape).signs if sign.alarming]
            self._judged[key] = "; ".join(map(str, alarming)) or None
        return self._judged[key]
