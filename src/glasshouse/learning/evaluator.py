"""Testing a model with all workers."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import hits
from glasshouse.learning.layout import write_vector
from glasshouse.learning.shared import Shared

PORTION = 1000
"""Test images of one job: ten jobs for the usual 10,000."""


@dataclass(frozen=True, eq=False)
class _Portion:
    task: Shared
    vector: Shared
    start: int


class Evaluator:
    """Tests states of `model` on the images at `test` in `pool`; each worker receives all three once."""

    def __init__(self, model: nn.Module, pool: Images, test: np.ndarray, engine: Engine) -> None:
        self._engine = engine
        self._task = engine.share((model, engine.share_images(pool), test))
        self._count = len(test)

    def hits(self, vector: Tensor) -> Tensor:
        """Which test images the model in state `vector`, shape (P,), classifies correctly, bool (N,)."""
        shared = self._engine.share(vector.numpy())
        jobs = [_Portion(self._task, shared, start) for start in range(0, self._count, PORTION)]
        parts = list(self._engine.map(_score, jobs))
        shared.remove()
        return torch.cat(parts)

    def accuracy(self, vector: Tensor) -> float | None:
        """The share of test images classified correctly; null where there are none."""
        return self.hits(vector).double().mean().item() if self._count else None


def _score(job: _Portion) -> Tensor:
    model, pool, test = job.task.get()
    write_vector(model, torch.from_numpy(job.vector.get()))
    return hits(model, pool.get()[test[job.start : job.start + PORTION]])
