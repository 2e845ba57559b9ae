"""Membership where whole users or clients were drawn: intervals over these, as records of one go together.

The records of a group are all members or all not. A model may tell hospitals apart by their scanners and have
learned no single record; whoever draws twelve hospitals has twelve cases of that, however many records.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from glasshouse.measures import membership
from glasshouse.measures.estimate import LEVEL, Estimate, clopper_pearson, clustered_mean, combined, worth
from glasshouse.measures.membership import FPR_TAIL, placements

LEAST = 4
"""Groups of members, and of others, from which there is an interval."""

DRAWS = 400


def auc(scores: np.ndarray, member: np.ndarray, groups: np.ndarray) -> Estimate:
    """Area under the ROC curve, its interval over `groups`, by number, shape (N,); over records without any.

    Obuchowski's variance (1997): DeLong's with the sums of a group's placements in the place of single ones,
    v = I / (I - 1) * sum over I groups of (sum of placement - AUC)^2 / m^2 for members and for others. The
    quantile is Student's t with Welch's degrees of freedom. Where the sides do not overlap, the interval is
    the binomial one for as many cases as the groups of the smaller side are worth.
    """
    return _over_groups(membership.auc(scores, member), member, groups, lambda: _auc(scores, member, groups))


def balanced_accuracy(decisions: np.ndarray, member: np.ndarray, groups: np.ndarray) -> Estimate:
    """Mean of the true positive and true negative rates, its interval over the groups."""
    plain = membership.balanced_accuracy(decisions, member)

    def over() -> Estimate:
        tpr, tnr = (_rate(decisions[side] == member[side], groups[side]) for side in (member, ~member))
        return combined([tpr, tnr], [0.5, 0.5])

    return _over_groups(plain, member, groups, over)


def advantage(decisions: np.ndarray, member: np.ndarray, groups: np.ndarray) -> Estimate:
    """True positive rate minus false positive rate, its interval over the groups."""
    plain = membership.advantage(decisions, member)

    def over() -> Estimate:
        tpr, fpr = (_rate(decisions[side], groups[side]) for side in (member, ~member))
        return combined([tpr, fpr], [1.0, -1.0])

    return _over_groups(plain, member, groups, over)


def tpr_at_fpr(scores: np.ndarray, member: np.ndarray, fpr: float, groups: np.ndarray) -> Estimate:
    """The share of members found while at most `fpr` of the non-members are falsely accused.

    The interval is that of a bootstrap of groups, of members and of others, each draw with a threshold of its
    own. Of I groups I - 1 are drawn, which makes the variance of a mean right (Rao and Wu 1988), and the
    distances to the quantiles are stretched from normal ones to Student's t with the fewer groups less one.
    A threshold from few groups is low rather than high, so the quantiles leave out half as much as usual.
    """
    plain = membership.tpr_at_fpr(scores, member, fpr)
    if plain.value is None:
        return plain
    return _over_groups(plain, member, groups, lambda: _tpr(scores, member, fpr, groups, plain))


def _over_groups(
    plain: Estimate, member: np.ndarray, groups: np.ndarray, over: Callable[[], Estimate]
) -> Estimate:
    """The interval `over` groups, no narrower than the `plain` one over single records; none for few groups.

    Without groups single records were drawn, and the plain one holds.
    """
    if not len(groups):
        return plain
    inside, outside = (len(np.unique(groups[side])) for side in (member, ~member))
    counted = f"{inside} trained on and {outside} held out"
    if min(inside, outside) < LEAST:
        why = f"no interval: whole users or clients were drawn, {counted}, and it takes {LEAST} of each"
        return replace(plain, low=None, high=None, note=why)
    if plain.low is None or plain.high is None:
        return plain
    wide = over()
    if wide.low is None or wide.high is None:
        why = wide.note or "no interval: one user or client holds nearly all records"
        return replace(plain, low=None, high=None, note=why)
    told = f"interval over whole users or clients, {counted}"
    return replace(plain, low=min(plain.low, wide.low), high=max(plain.high, wide.high), note=told)


def _auc(scores: np.ndarray, member: np.ndarray, groups: np.ndarray) -> Estimate:
    sides = list(zip(placements(scores, member), (groups[member], groups[~member])))
    value = float(sides[0][0].mean())
    if value in (0.0, 1.0):
        cases = min(worth(group) for _, group in sides)
        return Estimate(value, *clopper_pearson(value * cases, cases), len(member))
    variances, freedoms = zip(*(_of_mean(placed, group) for placed, group in sides))
    variance = sum(variances)
    if not variance:
        return Estimate(value, None, None, len(member), "no interval: all users or clients score alike")
    freedom = variance**2 / sum(one**2 / count for one, count in zip(variances, freedoms))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance) / (value * (1 - value))
    low, high = (float(expit(logit(value) + side)) for side in (-reach, reach))
    return Estimate(value, low, high, len(member))


def _of_mean(values: np.ndarray, groups: np.ndarray) -> tuple[float, int]:
    """The variance of the mean of `values` that come in groups, and its degrees of freedom."""
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], values - values.mean())
    count = len(sums)
    return float((sums**2).sum()) * count / (count - 1) / len(values) ** 2, count - 1


def _rate(hits: np.ndarray, groups: np.ndarray) -> Estimate:
    return clustered_mean(hits.astype(float).tolist(), groups, bounds=(0, 1))


def _tpr(scores: np.ndarray, member: np.ndarray, fpr: float, groups: np.ndarray, plain: Estimate) -> Estimate:
    which = [np.unique(groups[side], return_inverse=True)[1] for side in (member, ~member)]
    order = np.argsort(-scores[~member], kind="stable")
    inside, outside, (of_inside, of_outside) = scores[member], scores[~member][order], which
    of_outside = of_outside[order]
    rng = np.random.default_rng(0)  # so that the same scores always have the same interval

    def rate() -> float:
        """The share of members above the threshold, with each group as often as it is drawn."""
        times, others = _times_drawn(of_inside, rng), _times_drawn(of_outside, rng)
        accused = np.cumsum(others)
        threshold = outside[np.searchsorted(accused, math.floor(fpr * accused[-1] + 1e-9) + 1)]
        return float(times[inside > threshold].sum() / times.sum())

    drawn = [rate() for _ in range(DRAWS)]
    fewer = min(int(one.max()) + 1 for one in which)
    stretch = float(stats.t.ppf((1 + LEVEL) / 2, fewer - 1) / stats.norm.ppf((1 + LEVEL) / 2))
    value = plain.value or 0.0
    low, high = (float(end) for end in np.quantile(drawn, [FPR_TAIL, 1 - FPR_TAIL]))
    below, above = max(0.0, value - low), max(0.0, high - value)
    return Estimate(value, max(0.0, value - stretch * below), min(1.0, value + stretch * above), plain.n)


def _times_drawn(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How often each record is drawn, where all but one of as many draws as there are `groups` are made."""
    count = int(groups.max()) + 1
    times: np.ndarray = np.bincount(rng.integers(count, size=count - 1), minlength=count)[groups]
    return times
