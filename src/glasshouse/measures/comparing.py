"""Whether a leak is more than chance: against another attack, and under shuffled truth."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from glasshouse.errors import BadInput
from glasshouse.measures.estimate import LEVEL, Estimate, clopper_pearson, clustered_mean, combined
from glasshouse.measures.membership import auc, placements

Statistic = Callable[[np.ndarray, np.ndarray], Estimate]


def auc_difference(a: np.ndarray, b: np.ndarray, member: np.ndarray) -> Estimate:
    """How much larger the AUC of the scores `a` is than that of `b` on the same records.

    The variance is DeLong's for correlated curves: that of the differences of the placements. Where both
    attacks separate fully it says nothing, and the two AUCs' own intervals are combined as if independent.
    """
    (above_a, below_a), (above_b, below_b) = placements(a, member), placements(b, member)
    above, below = above_a - above_b, below_a - below_b
    m, n = len(above), len(below)
    if min(m, n) < 2 or {float(above_a.mean()), float(above_b.mean())} <= {0.0, 1.0}:
        return replace(combined([auc(a, member), auc(b, member)], [1.0, -1.0]), n=m + n)
    value = float(above_a.mean() - above_b.mean())
    half = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
    return Estimate(value, max(-1.0, value - half), min(1.0, value + half), m + n)


def share_difference(a: np.ndarray, b: np.ndarray) -> Estimate:
    """How much more often `a` holds than `b` on the same records, both bool of shape (N,).

    The square-root rule for dependent shares: the distance to an end is the third side of the triangle whose
    sides are the distances of the two exact intervals and whose angle has their correlation as its cosine.
    """
    n = len(a)
    p, q = int(a.sum()) / n, int(b.sum()) / n
    (p_low, p_high), (q_low, q_high) = clopper_pearson(int(a.sum()), n), clopper_pearson(int(b.sum()), n)
    varied = 0 < p < 1 and 0 < q < 1
    correlation = float(np.corrcoef(a, b)[0, 1]) if varied else 0.0
    low = p - q - _third_side(p - p_low, q_high - q, correlation)
    high = p - q + _third_side(p_high - p, q - q_low, correlation)
    return Estimate(p - q, low, high, n)


def rate_difference(a: np.ndarray, b: np.ndarray, member: np.ndarray, weight: float = 0.5) -> Estimate:
    """How much higher the balanced accuracy of the decisions `a` is than that of `b` on the same records.

    The differences among members and among others, each paired, with `weight`: of 1 for the advantage, which
    is the sum of both rates of right decisions less one.

    >>> said, member = np.array([True, True, False, False]), np.array([True, False, True, False])
    >>> rate_difference(member, said, member).value, rate_difference(member, said, member, 1.0).value
    (0.5, 1.0)
    """
    sides = [(member, a, b), (~member, ~a, ~b)]
    parts = [share_difference(one[side], other[side]) for side, one, other in sides]
    return combined(parts, [weight, weight])


def tpr_difference(
    a: np.ndarray,
    b: np.ndarray,
    member: np.ndarray,
    fpr: float,
    rng: np.random.Generator,
    draws: int = 500,
) -> Estimate | None:
    """How much higher the TPR at `fpr` of the scores `a` is than that of `b` on the same records.

    The interval is that of a paired bootstrap, of members and others apart: both scores of a record are drawn
    together, and each draw has thresholds of its own. Null where the rate cannot be resolved, or where no
    draw differs from another.
    """
    sides = [(np.stack([a[side], b[side]]), int(side.sum())) for side in (member, ~member)]
    (inside, m), (outside, n) = sides
    allowed = math.floor(fpr * n + 1e-9)
    if allowed < 1 or m < 2:
        return None

    def gained(inside: np.ndarray, outside: np.ndarray) -> float:
        thresholds = np.partition(outside, n - allowed - 1, axis=1)[:, n - allowed - 1]
        first, second = (inside > thresholds[:, None]).mean(1)
        return float(first - second)

    drawn = [
        gained(inside[:, rng.integers(m, size=m)], outside[:, rng.integers(n, size=n)]) for _ in range(draws)
    ]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = gained(inside, outside)
    if low == high:
        return None
    return Estimate(value, min(value, float(low)), max(value, float(high)), m + n)


def mean_difference(a: np.ndarray, b: np.ndarray, clusters: np.ndarray) -> Estimate:
    """How much larger `a` is than `b` on average, both of shape (N,); those of a cluster go together."""
    return clustered_mean((a - b).tolist(), clusters)


@dataclass(frozen=True)
class PermutationNull:
    """What a statistic comes to when membership is shuffled: its mean, its 95% quantile, and a p-value.

    `p_value` is the one-sided (1 + shuffles at least as high as observed) / (1 + `draws`).
    """

    p_value: float
    mean: float
    high: float
    draws: int


def permutation_null(
    statistic: Statistic, scores: np.ndarray, member: np.ndarray, rng: np.random.Generator, draws: int = 1000
) -> PermutationNull:
    """Compare a statistic with itself under `draws` shuffles of who is a member.

    The AUC is computed from ranks taken once, since shuffling changes who holds a rank but not the ranks.
    """
    if statistic is auc:
        observed, null = _rank_sum_null(scores, member, rng, draws)
    else:
        observed = _value(statistic(scores, member))
        null = np.array([_value(statistic(scores, rng.permutation(member))) for _ in range(draws)])
    p_value = (1 + int((null >= observed).sum())) / (1 + draws)
    return PermutationNull(p_value, float(null.mean()), float(np.quantile(null, LEVEL)), draws)


def _rank_sum_null(
    scores: np.ndarray, member: np.ndarray, rng: np.random.Generator, draws: int
) -> tuple[float, np.ndarray]:
    """The AUC and its values under shuffles: the members' rank sum above its least, in shares of m n."""
    ranks = stats.rankdata(scores)
    m = int(member.sum())
    sums = [rng.choice(ranks, m, replace=False, shuffle=False).sum() for _ in range(draws)]
    areas = (np.array([ranks[member].sum(), *sums]) - m * (m + 1) / 2) / (m * (len(ranks) - m))
    return float(areas[0]), areas[1:]


def _value(estimate: Estimate) -> float:
    if estimate.value is None:
        raise BadInput(f"a permutation test needs a value, but it is {estimate.note}; give more records")
    return estimate.value


def _third_side(one: float, other: float, cosine: float) -> float:
    return math.sqrt(max(0.0, one**2 + other**2 - 2 * cosine * one * other))
