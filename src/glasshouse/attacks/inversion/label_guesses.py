"""The labels behind an update, which an inversion needs before it can look for the images."""

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import Protocol
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.attacks.labels.counts import count_labels
from glasshouse.attacks.labels.head import find_head
from glasshouse.errors import CannotRun
from glasshouse.measures.labels import whole_counts

SOURCES = ("given", "idlg", "smallest", "counts", "joint")
"""Where labels come from; "joint" seeks them together with the images."""


def check_source(source: str, protocol: Protocol, samples: int) -> None:
    """Raise `CannotRun` where the labels of `samples` images or more cannot come from there."""
    if source == "idlg":
        _check_alone(samples)
    if source in ("idlg", "smallest", "counts"):
        find_head(protocol)


def _check_alone(samples: int) -> None:
    if samples != 1:
        raise CannotRun(f"iDLG reads the label of one image, and {samples} are behind this update")


def guessed_labels(source: str, update: AttackedUpdate, count: int, knowledge: Knowledge) -> Tensor | None:
    """The labels of `count` images behind an update, ascending, shape (count,); null where they are sought.

    Where the images are fewer than the update's, its label counts are scaled down.
    """
    if source == "joint":
        return None
    if source == "given":
        held = required(knowledge.labels)
        counts = np.sum([held[client] for client in update.clients], axis=0)
    elif source == "counts":
        counts = counted(update)
    else:
        chosen = lone_label(update) if source == "idlg" else smallest_rows(update, count)
        counts = np.bincount(chosen, minlength=update.protocol.classes)
    return repeated(whole_counts(counts, count))


def counted(update: AttackedUpdate) -> np.ndarray:
    """How many images of each class are behind an update, shape (classes,), by the head's linear system."""
    protocol = update.protocol
    rates = [size * protocol.recipe.effective_rate(size) for size in update.sizes]
    scale = sum(rates) / update.samples
    return count_labels(
        protocol.layout,
        find_head(protocol),
        update.sent,
        update.delta,
        scale,
        update.samples,
        update.steps,
        protocol.recipe.label_smoothing,
    )


def lone_label(update: AttackedUpdate) -> np.ndarray:
    """iDLG: the class whose row of the head's gradient has the lowest sum; exact for one image.

    Cross-entropy gives row j the gradient (p_j - [j = y]) h. Where the features h are not negative, as after
    a sigmoid or a ReLU, only the row of the label y is negative.
    """
    _check_alone(update.samples)
    return _head_gradient(update).sum(1).argmin(0, keepdim=True).numpy()


def smallest_rows(update: AttackedUpdate, count: int) -> np.ndarray:
    """GradInversion: the `count` classes whose rows of the head's gradient have the lowest minima.

    It takes every label to occur once at most.
    """
    rows = _head_gradient(update)
    if count > len(rows):
        raise CannotRun(f"{count} labels that all differ are sought, and there are {len(rows)} classes")
    return rows.min(1).values.argsort()[:count].numpy()


def repeated(counts: np.ndarray) -> Tensor:
    """Every class as often as it is counted, ascending.

    >>> repeated(np.array([1, 0, 2]))
    tensor([0, 2, 2])
    """
    return torch.from_numpy(np.repeat(np.arange(len(counts)), counts))


def _head_gradient(update: AttackedUpdate) -> Tensor:
    """The gradient of the head's weight, shape (classes, width)."""
    return update.protocol.layout.named(update.gradient())[find_head(update.protocol).weight]
