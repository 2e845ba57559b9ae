"""Names for the parameters of a model, and for the clients of a Flower app."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.errors import BadInput

if TYPE_CHECKING:
    from torch import nn

    from glasshouse.models.shapes import Shape


class ParameterNames:
    """The names that parameters have in the state_dict of a model, where they came without."""

    def __init__(self, model: "str | nn.Module | None", shape: "Shape | None", classes: int | None) -> None:
        self._model, self._shape, self._classes = model, shape, classes
        self._forms: dict[str, tuple[int, ...]] | None = None

    def named(self, arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays by name, from a mapping of names, or from a list in the order of the state_dict."""
        if isinstance(arrays, Mapping):
            if self._model is None or [*arrays] != [str(place) for place in range(len(arrays))]:
                return dict(arrays)
            arrays = list(arrays.values())  # Flower numbers what came as a list
        forms = self._known_forms()
        if [array.shape for array in arrays] != [*forms.values()]:
            raise BadInput(
                f"{len(arrays)} parameters without names do not have the shapes of the {len(forms)} entries "
                "of the model's state_dict; send all of them in its order, or give the model they belong to"
            )
        return dict(zip(forms, arrays, strict=True))

    def _known_forms(self) -> dict[str, tuple[int, ...]]:
        if self._forms is None:
            state = self._module().state_dict()
            self._forms = {name: tuple(tensor.shape) for name, tensor in state.items()}
        return self._forms

    def _module(self) -> "nn.Module":
        if not isinstance(self._model, str):
            if self._model is None:
                raise BadInput("the parameters have no names; give the model that they belong to")
            return self._model
        from glasshouse.models.loading import load_model  # it needs torch, which an app may do without

        if self._shape is None or self._classes is None:
            raise BadInput(f"model = {self._model!r} is built for a shape and classes; give both")
        return load_model(self._model, self._shape, self._classes)


def place_of(model: "nn.Module") -> str | None:
    """Where the class of a module comes from, a hint for whoever reads the record; null for a plain one."""
    kind = type(model)
    own = not kind.__module__.startswith(("torch.", "glasshouse.")) and "<" not in kind.__qualname__
    return f"{kind.__module__}:{kind.__qualname__}" if own else None


class ClientNames:
    """What clients are called: by their node's number, or by what they send under a key.

    A name belongs to the first node that gave it; another node that gives it is called by its number.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._owners: dict[str, int] = {}

    def of(self, node: int, records: Sequence[Mapping[str, Any]]) -> str:
        """The name of a node whose reply holds `records` of metrics and settings."""
        key = self._key
        values = [] if key is None else [record[key] for record in records if key in record]
        name = str(values[0])[:200] if values else ""
        owned = name and not name.startswith("node-") and self._owners.setdefault(name, node) == node
        return name if owned else f"node-{node}"
