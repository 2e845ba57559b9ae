"""The last linear layer of a network, where labels show."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.attack import CannotRun


@dataclass(frozen=True)
class Head:
    """The names of the last linear layer's weight, shape (classes, width), and bias, shape (classes,)."""

    weight: str
    bias: str


def find_head(protocol: Protocol) -> Head:
    """The head of the protocol's network, or `CannotRun` where labels do not show in it."""
    if protocol.recipe.optimiser != "sgd":
        raise CannotRun(
            f"{protocol.recipe.optimiser} rescales each entry, so updates do not add up like gradients"
        )
    heads = [
        Head(f"{name}.weight".lstrip("."), f"{name}.bias".lstrip("."))
        for name, module in protocol.architecture.named_modules()
        if isinstance(module, nn.Linear)
        and module.out_features == protocol.classes
        and module.bias is not None
    ]
    if not heads:
        raise CannotRun("the network does not end in a linear layer with a bias")
    return heads[-1]


def whole_counts(shares: np.ndarray, samples: int) -> np.ndarray:
    """Whole counts proportional to the non-negative `shares`, adding up to `samples` (largest remainder)."""
    shares = np.maximum(shares, 0)
    total = shares.sum()
    ideal = shares * (samples / total) if total > 0 else np.full(len(shares), samples / len(shares))
    counts = np.floor(ideal + 1e-6).astype(int)
    short = samples - int(counts.sum())
    counts[np.argsort(counts - ideal, kind="stable")[:short]] += 1
    return counts


def softmax(logits: Tensor) -> np.ndarray:
    """Probabilities over the last axis, as a double array."""
    probabilities: np.ndarray = logits.double().softmax(-1).numpy()
    return probabilities
