"""Counts of labels: whole ones from shares, and how many of them are right."""

import numpy as np


def whole_counts(shares: np.ndarray, samples: int) -> np.ndarray:
    """Whole counts proportional to the non-negative `shares`, adding up to `samples` (largest remainder).

    >>> whole_counts(np.array([2.0, 1.0, 0.0]), 4).tolist()
    [3, 1, 0]
    """
    shares = np.maximum(shares, 0)
    total = shares.sum()
    ideal = shares * (samples / total) if total > 0 else np.full(len(shares), samples / len(shares))
    counts = np.floor(ideal + 1e-6).astype(int)
    short = samples - int(counts.sum())
    counts[np.argsort(counts - ideal, kind="stable")[:short]] += 1
    return counts


def overlap(counts: np.ndarray, held: np.ndarray) -> float:
    """The share of the labels counted right: 1 minus half the L1 distance over their number.

    >>> overlap(np.array([3, 1]), np.array([2, 2]))
    0.75
    """
    return float(1 - np.abs(counts - held).sum() / (2 * held.sum()))
