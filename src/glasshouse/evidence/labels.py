"""How many images of each class clients hold."""

from dataclasses import dataclass

import numpy as np

from glasshouse.evidence.evidence import Evidence


@dataclass(frozen=True, eq=False)
class CountedLabels:
    """How many training samples of each class some clients hold together, shape (classes,)."""

    clients: tuple[int, ...]
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class LabelCounts(Evidence):
    """Label counts, one for each client or group of clients."""

    counted: tuple[CountedLabels, ...]
