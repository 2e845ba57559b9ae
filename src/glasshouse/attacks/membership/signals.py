"""What a model's answer about a record says of membership: its loss, and the log-odds of its label."""

from typing import TypeVar

import numpy as np
from torch import Tensor

from glasshouse.access import QueryAccess
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.federation.shadows import log_odds

__all__ = ["asked", "log_odds", "losses", "required"]
TINY = 1e-300
T = TypeVar("T")


def required(value: T | None) -> T:
    """A part of its knowledge that an attack asks for, and so has."""
    assert value is not None
    return value


def asked(access: QueryAccess, images: Images) -> np.ndarray:
    """The target's log-probabilities for the images, double of shape (N, classes)."""
    probabilities: Tensor = access.probabilities(images.x)
    log_probabilities: np.ndarray = probabilities.double().clamp_min(TINY).log().numpy()
    if not np.isfinite(log_probabilities).all():
        raise CannotRun("the model's answers are not finite numbers")
    return log_probabilities


def losses(log_probabilities: np.ndarray, y: Tensor) -> np.ndarray:
    """The cross-entropy of each record, shape (N,)."""
    return np.asarray(-log_probabilities[np.arange(len(y)), y.numpy()])
