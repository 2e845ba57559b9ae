"""How well scores or decisions tell members from non-members."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import overload

import numpy as np
from scipy import stats
from scipy.special import expit, logit
from sklearn.metrics import roc_curve

from glasshouse.measures.estimate import LEVEL, Estimate, clopper_pearson, combined, proportion

# The threshold's error and the rate's share what an interval at a false positive rate may miss on one side.
FPR_TAIL = (1 - LEVEL) / 4


def auc(scores: np.ndarray, member: np.ndarray) -> Estimate:
    """Area under the ROC curve: the chance that a random member scores above a random non-member.

    The variance is DeLong's, from each sample's placement among the other group, and the interval is
    symmetric in the log-odds of the area, which keeps its coverage near 1. Where the groups do not overlap
    the variance vanishes, and the interval is the binomial one of the smaller group.
    """
    above, below = placements(scores, member)
    m, n = len(above), len(below)
    value = float(above.mean())
    if min(m, n) < 2:
        return Estimate(value, None, None, m + n)
    if value in (0.0, 1.0):
        low, high = clopper_pearson(round(value * min(m, n)), min(m, n))
        return Estimate(value, low, high, m + n)
    variance = above.var(ddof=1) / m + below.var(ddof=1) / n
    if not variance:
        return Estimate(value, None, None, m + n, "all scores are equal")
    half = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance) / (value * (1 - value))
    low, high = (float(expit(logit(value) + side)) for side in (-half, half))
    return Estimate(value, low, high, m + n)


def placements(scores: np.ndarray, member: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each member the share of non-members below it; for each non-member the share of members above it.

    A tie counts half. The mean of either is the AUC, and their variances are what DeLong's is made of.
    """
    inside, outside = scores[member], scores[~member]
    ranks = stats.rankdata(np.concatenate([inside, outside]))
    m, n = len(inside), len(outside)
    return (ranks[:m] - stats.rankdata(inside)) / n, 1 - (ranks[m:] - stats.rankdata(outside)) / m


@overload
def null_curve(auc: Estimate, batch: int) -> Estimate: ...
@overload
def null_curve(auc: float, batch: int) -> float: ...
def null_curve(auc: Estimate | float, batch: int) -> Estimate | float:
    """The AUC that `batch` records reach together if each alone reaches `auc` and they share nothing else.

    The mean of B independent scores separates sqrt(B) times as far as one: for Gaussian scores of equal
    variance AUC_B = Phi(sqrt(B) Phi^-1(AUC_1)). An attack on batches that only averages lies on this curve.
    The map is monotone, so an interval's ends map to the ends.

    >>> null_curve(0.5, 100), null_curve(1.0, 4), null_curve(0.0, 4)
    (0.5, 1.0, 0.0)
    """
    if isinstance(auc, Estimate):
        value, low, high = (
            None if x is None else null_curve(x, batch) for x in (auc.value, auc.low, auc.high)
        )
        return replace(auc, value=value, low=low, high=high)
    return float(stats.norm.cdf(math.sqrt(batch) * stats.norm.ppf(auc)))


def balanced_accuracy(decisions: np.ndarray, member: np.ndarray) -> Estimate:
    """Mean of the true positive and true negative rates, its interval combined from their exact ones."""
    return combined(_right_rates(decisions, member), [0.5, 0.5])


def advantage(decisions: np.ndarray, member: np.ndarray) -> Estimate:
    """True positive rate minus false positive rate, which is twice the balanced accuracy minus one; chance 0.

    >>> advantage(np.ones(8, dtype=bool), np.arange(8) < 5).value  # always "member"
    0.0
    """
    tpr, tnr = _right_rates(decisions, member)
    fpr = proportion(int(decisions[~member].sum()), tnr.n)
    return combined([tpr, fpr], [1.0, -1.0])


def accuracy_at_mix(decisions: np.ndarray, member: np.ndarray, members_per_nonmember: float) -> Estimate:
    """The accuracy at `members_per_nonmember` members to one non-member, whatever the mix that was measured.

    Its chance is `majority_rate`: "always member" is right 5 times in 6 where members are 5 to 1.

    >>> accuracy_at_mix(np.ones(8, dtype=bool), np.arange(8) < 4, 5).value == majority_rate(5)
    True
    """
    total = members_per_nonmember + 1
    return combined(_right_rates(decisions, member), [members_per_nonmember / total, 1 / total])


def majority_rate(members_per_nonmember: float) -> float:
    """The accuracy of always naming the more frequent side.

    >>> majority_rate(1), majority_rate(3), majority_rate(0.25)
    (0.5, 0.75, 0.8)
    """
    return max(members_per_nonmember, 1.0) / (members_per_nonmember + 1)


def tpr_at_fpr(scores: np.ndarray, member: np.ndarray, fpr: float) -> Estimate:
    """The share of members found while at most `fpr` of the non-members are falsely accused.

    Not estimable where even one false accusation is more than `fpr`. The threshold is itself an estimate: the
    k-th highest of n non-members has a false positive rate distributed as Beta(k, n + 1 - k). So the interval
    runs from the share above a threshold that is surely strict enough to that above one that surely is not.
    """
    inside, outside = scores[member], scores[~member]
    m, n = len(inside), len(outside)
    allowed = math.floor(fpr * n + 1e-9)
    if allowed < 1:
        note = f"{n} non-members cannot resolve a false positive rate of {fpr:g}"
        return Estimate(None, None, None, len(member), note)
    strict, loose = _surely_strict_and_loose(n, fpr)
    ranks = [min(rank, n) for rank in (allowed + 1, max(strict, 1), loose)]
    ordered = np.partition(outside, [n - rank for rank in ranks])
    above, surely, perhaps = (int((inside > ordered[n - rank]).sum()) for rank in ranks)
    low = clopper_pearson(surely, m, FPR_TAIL)[0] if strict >= 1 else 0.0
    high = clopper_pearson(perhaps, m, FPR_TAIL)[1] if loose <= n else 1.0
    return Estimate(above / m, low, high, m)


def chance_at_fpr(nonmembers: int, fpr: float) -> float:
    """What scores that tell nothing reach at `fpr`: the mean rate above the threshold that is taken there."""
    return (math.floor(fpr * nonmembers + 1e-9) + 1) / (nonmembers + 1)


def roc(scores: np.ndarray, member: np.ndarray) -> tuple[list[float], list[float]]:
    """False and true positive rates over all thresholds, as two lists."""
    fpr, tpr, _ = roc_curve(member, scores)
    return fpr.tolist(), tpr.tolist()


@lru_cache(maxsize=256)
def _surely_strict_and_loose(nonmembers: int, fpr: float) -> tuple[int, int]:
    """The lowest rank whose false positive rate surely is below `fpr`, and the highest whose surely is above.

    A Beta(k, n + 1 - k) variable lies below x as often as Bin(n, x) reaches k. A rank of 0 or beyond
    `nonmembers` means that there is none.
    """
    count = stats.binom(nonmembers, fpr)
    return int(count.ppf(FPR_TAIL)), int(count.isf(FPR_TAIL)) + 1


def _right_rates(decisions: np.ndarray, member: np.ndarray) -> tuple[Estimate, Estimate]:
    """The true positive and the true negative rate."""
    right_in, right_out = decisions[member], ~decisions[~member]
    return proportion(int(right_in.sum()), len(right_in)), proportion(int(right_out.sum()), len(right_out))
