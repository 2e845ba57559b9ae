"""How well scores or decisions tell members from non-members."""

import math

import numpy as np
from scipy import stats
from sklearn.metrics import roc_curve

from glasshouse.measures.estimate import Estimate, clopper_pearson, proportion


def auc(scores: np.ndarray, member: np.ndarray) -> Estimate:
    """Area under the ROC curve: the chance that a random member scores above a random non-member.

    The variance is DeLong's, from each sample's placement among the other group.
    """
    inside, outside = scores[member], scores[~member]
    ranks = stats.rankdata(np.concatenate([inside, outside]))
    m, n = len(inside), len(outside)
    above = (ranks[:m] - stats.rankdata(inside)) / n
    below = 1 - (ranks[m:] - stats.rankdata(outside)) / m
    value = float(above.mean())
    if min(m, n) < 2:
        return Estimate(value, None, None, m + n)
    half = 1.959964 * math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), m + n)


def balanced_accuracy(decisions: np.ndarray, member: np.ndarray) -> Estimate:
    """Mean of the true positive and true negative rates.

    Its interval combines the two exact ones by the square-root rule (Zou and Donner's MOVER).
    """
    rates, squares_low, squares_high = [], 0.0, 0.0
    for right in (decisions[member], ~decisions[~member]):
        rate = float(right.mean())
        low, high = clopper_pearson(int(right.sum()), len(right))
        rates.append(rate)
        squares_low += (rate - low) ** 2
        squares_high += (high - rate) ** 2
    value = sum(rates) / 2
    return Estimate(
        value, value - math.sqrt(squares_low) / 2, value + math.sqrt(squares_high) / 2, len(member)
    )


def tpr_at_fpr(scores: np.ndarray, member: np.ndarray, fpr: float) -> Estimate:
    """The share of members found while at most `fpr` of the non-members are falsely accused.

    Not estimable where even one false accusation is more than `fpr`.
    """
    inside, outside = scores[member], scores[~member]
    allowed = math.floor(fpr * len(outside) + 1e-9)
    if allowed < 1:
        note = f"not estimable: {len(outside)} non-members cannot resolve a false positive rate of {fpr:g}"
        return Estimate(None, None, None, len(member), note)
    threshold = np.sort(outside)[-allowed - 1] if allowed < len(outside) else -np.inf
    return proportion(int((inside > threshold).sum()), len(inside))


def roc(scores: np.ndarray, member: np.ndarray) -> tuple[list[float], list[float]]:
    """False and true positive rates over all thresholds, as two lists."""
    fpr, tpr, _ = roc_curve(member, scores)
    return fpr.tolist(), tpr.tolist()
