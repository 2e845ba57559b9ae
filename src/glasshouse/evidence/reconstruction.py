"""Training images rebuilt."""

from dataclasses import dataclass

from torch import Tensor

from glasshouse.evidence.evidence import Evidence


@dataclass(frozen=True, eq=False)
class Reconstructions(Evidence):
    """Images, shape (K, C, H, W) in [0, 1], believed to be among the training data of `clients`.

    There are at most as many as these clients hold together. `offline` are the seconds that went into
    preparing the attack, once for all rounds; `online` those from the update to the images.
    `note` says what it took beyond a round with one model, and what kept it from more.
    """

    x: Tensor
    clients: tuple[int, ...]
    offline: float
    online: float
    note: str | None = None
