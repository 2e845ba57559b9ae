"""Which client holds a record."""

from dataclasses import dataclass

import numpy as np

from glasshouse.evidence.evidence import Evidence


@dataclass(frozen=True, eq=False)
class Sources(Evidence):
    """For each candidate the number of the client that is most likely to hold it, shape (N,)."""

    clients: np.ndarray
