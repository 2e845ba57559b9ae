"""How near what an adversary holds lies to records."""

from dataclasses import dataclass

import numpy as np

from glasshouse.evidence.evidence import Evidence


@dataclass(frozen=True, eq=False)
class Nearness(Evidence):
    """How far each candidate lies from each of K samples that the adversary holds, shape (K, N)."""

    distances: np.ndarray
