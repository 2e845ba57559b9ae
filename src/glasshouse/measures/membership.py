"""How well scores or decisions tell members from non-members."""

import math

import numpy as np
from scipy import stats
from sklearn.metrics import roc_curve

from glasshouse.measures.estimate import LEVEL, Estimate, clopper_pearson


def auc(scores: np.ndarray, member: np.ndarray) -> Estimate:
    """Area under the ROC curve: the chance that a random member scores above a random non-member.

    The variance is DeLong's, from each sample's placement among the other group. Where the groups do not
    overlap it vanishes, and the interval is the binomial one of the smaller group.
    """
    inside, outside = scores[member], scores[~member]
    ranks = stats.rankdata(np.concatenate([inside, outside]))
    m, n = len(inside), len(outside)
    above = (ranks[:m] - stats.rankdata(inside)) / n
    below = 1 - (ranks[m:] - stats.rankdata(outside)) / m
    value = float(above.mean())
    if min(m, n) < 2:
        return Estimate(value, None, None, m + n)
    if value in (0.0, 1.0):
        low, high = clopper_pearson(round(value * min(m, n)), min(m, n))
        return Estimate(value, low, high, m + n)
    half = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
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

    Not estimable where even one false accusation is more than `fpr`. The threshold is itself an estimate: the
    k-th highest of n non-members has a false positive rate distributed as Beta(k, n + 1 - k). So the interval
    runs from the share above a threshold that is surely strict enough to that above one that surely is not.
    """
    inside, outside = scores[member], np.sort(scores[~member])[::-1]
    allowed = math.floor(fpr * len(outside) + 1e-9)
    if allowed < 1:
        note = f"not estimable: {len(outside)} non-members cannot resolve a false positive rate of {fpr:g}"
        return Estimate(None, None, None, len(member), note)
    found = len(inside) - np.searchsorted(np.sort(inside), outside, side="right")
    rank = np.arange(1, len(outside) + 1)
    tail = (1 - LEVEL) / 4
    strict = np.flatnonzero(stats.beta.sf(fpr, rank, len(outside) + 1 - rank) <= tail)
    loose = np.flatnonzero(stats.beta.cdf(fpr, rank, len(outside) + 1 - rank) <= tail)
    low = clopper_pearson(int(found[strict[-1]]), len(inside), tail)[0] if len(strict) else 0.0
    high = clopper_pearson(int(found[loose[0]]), len(inside), tail)[1] if len(loose) else 1.0
    return Estimate(float(found[min(allowed, len(outside) - 1)]) / len(inside), low, high, len(inside))


def chance_at_fpr(nonmembers: int, fpr: float) -> float:
    """What scores that tell nothing reach at `fpr`: the mean rate above the threshold that is taken there."""
    return (math.floor(fpr * nonmembers + 1e-9) + 1) / (nonmembers + 1)


def roc(scores: np.ndarray, member: np.ndarray) -> tuple[list[float], list[float]]:
    """False and true positive rates over all thresholds, as two lists."""
    fpr, tpr, _ = roc_curve(member, scores)
    return fpr.tolist(), tpr.tolist()
