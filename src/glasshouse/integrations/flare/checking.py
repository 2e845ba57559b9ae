"""What is wrong with a client's result, before it can spoil the mean."""

from collections.abc import Mapping

import numpy as np

from glasshouse.errors import quoted


def fault_in(arrays: Mapping[str, np.ndarray], sent: Mapping[str, np.ndarray], steps: float) -> str | None:
    """Why `arrays` cannot be added to others that start from the model `sent`; null where they can."""
    if not np.isfinite(steps) or steps <= 0:
        return f"it weighs {steps}, which must be above 0"
    for name, array in arrays.items():
        if name not in sent:
            return f"it has a tensor {quoted(name)}, which the model does not have"
        if array.shape != sent[name].shape:
            return f"{name} has shape {array.shape}, in the model {sent[name].shape}"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"{name} holds NaN or infinite values"
    return None if arrays else "it holds no tensor"
