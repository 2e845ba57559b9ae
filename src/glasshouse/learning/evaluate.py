"""What a model answers, in eval mode and without gradients."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import write_vector
from glasshouse.learning.shared import Shared

CHUNK = 500
"""Images a forward pass takes at once: large enough to be fast, small enough to stay in cache."""

PORTION = 1000
"""Test images of one job: ten jobs for the usual 10,000."""


def predict(model: nn.Module, x: Tensor) -> Tensor:
    """Logits for the images `x`, shape (N, classes); leaves the model in eval mode."""
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(channels_last(chunk)) for chunk in x.split(CHUNK)])
    assert not any(module.training for module in model.modules())
    return logits.clone()


def hits(model: nn.Module, images: Images) -> Tensor:
    """Which images the model classifies correctly, bool of shape (N,)."""
    return predict(model, images.x).argmax(1) == images.y


def accuracy(model: nn.Module, images: Images) -> float:
    """The share of images the model classifies correctly."""
    return hits(model, images).double().mean().item()


@dataclass(frozen=True, eq=False)
class _Portion:
    task: Shared
    vector: Shared
    start: int


def own_accuracy(hits: Tensor, y: Tensor, counts: Tensor) -> float | None:
    """The accuracy on the classes that somebody holds, each weighing as much as in their own data.

    `hits`, bool of shape (N,), says which test images with labels `y` are classified correctly; `counts`,
    shape (classes,), how many images of each class they hold. Null where no image of these classes is tested.

    >>> y = torch.tensor([0, 0, 1, 1, 2])
    >>> own_accuracy(torch.tensor([True, True, True, False, False]), y, torch.tensor([30, 10, 0]))
    0.875
    """
    tested = torch.bincount(y, minlength=len(counts)).double()
    right = torch.bincount(y, hits.double(), minlength=len(counts))
    weights = counts.double() * (tested > 0)
    if not weights.any():
        return None
    return (weights * (right / tested.clamp(min=1))).sum().item() / weights.sum().item()


class Evaluator:
    """Tests states of `model` on the images at `test` in `pool`; each worker receives all three once."""

    def __init__(self, model: nn.Module, pool: Images, test: np.ndarray, engine: Engine) -> None:
        self._engine = engine
        self._pool = engine.share_images(pool)
        self._task = engine.share((model, self._pool, test))
        self._labels = pool.y[torch.from_numpy(test)]
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

    def accuracies(self, vector: Tensor, held: Iterable[Tensor]) -> tuple[float | None, float | None]:
        """The accuracy on all test images, and its mean over clients on the classes that each has `held`.

        A client is given by its counts of labels, shape (classes,).
        """
        if not self._count:
            return None, None
        scored = self.hits(vector)
        own = [own_accuracy(scored, self._labels, counts) for counts in held]
        known = [share for share in own if share is not None]
        return scored.double().mean().item(), fmean(known) if known else None


def _score(job: _Portion) -> Tensor:
    model, pool, test = job.task.get()
    write_vector(model, torch.from_numpy(job.vector.get()))
    return hits(model, pool.get()[test[job.start : job.start + PORTION]])
