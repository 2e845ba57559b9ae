import math
from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from glasshouse.errors import BadInput
from glasshouse.measures.comparing import (
    RECORDS_ONLY,
    auc_difference,
    clustered,
    decision_difference,
    paired,
    permutation_null,
)
from glasshouse.measures.estimate import Estimate, combined, mean
from glasshouse.measures.membership import auc, balanced_accuracy, tpr_at_fpr


def covers(estimates, true):
    return np.mean([e.low <= true <= e.high for e in estimates])


def targets(rng, count, *, luck, records=200):
    """Gaussian scores whose separation is 1 on the mean and differs between targets by `luck`."""
    member = np.arange(records) < records // 2
    return [(rng.normal(member * rng.normal(1, luck)), member) for _ in range(count)]


def pairs_won(scores, member):
    """The AUC without its interval, pair by pair: quick on few records."""
    return Estimate(float((scores[member][:, None] > scores[~member]).mean()), None, None, len(member))


def share_above(scores, member, fpr):
    """The true positive rate at `fpr` without its interval, since resampling needs none."""
    outside = scores[~member]
    last = len(outside) - 1 - math.floor(fpr * len(outside))
    share = (scores[member] > np.partition(outside, last)[last]).mean()
    return Estimate(float(share), None, None, len(member))


@pytest.mark.parametrize(("count", "luck"), [(3, 0.0), (3, 0.4), (8, 0.0), (8, 0.4)])
def test_the_mean_over_targets_covers_with_and_without_luck_of_training(count, luck):
    rng = np.random.default_rng(0)
    # A mean of Phi(x) over Gaussian x is Phi of the mean over the root of one plus the variance.
    true = stats.norm.cdf(1 / math.sqrt(2 + luck**2))
    estimates = [clustered(pairs_won, targets(rng, count, luck=luck, records=60), rng) for _ in range(1500)]
    assert covers(estimates, true) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("count", "luck"), [(5, 0.0), (5, 0.3), (10, 0.3)])
def test_a_rate_pooled_over_targets_covers_what_all_targets_together_give(count, luck):
    rng = np.random.default_rng(1)
    true = stats.norm.sf((stats.norm.isf(0.05) - 1) / math.sqrt(1 + luck**2))
    at_5_percent = partial(share_above, fpr=0.05)
    estimates = [
        clustered(at_5_percent, targets(rng, count, luck=luck, records=400), rng, draws=50, pool=True)
        for _ in range(700)
    ]
    assert covers(estimates, true) == pytest.approx(0.95, abs=0.02)


def test_treating_the_records_of_lucky_targets_as_one_sample_would_cover_too_rarely():
    rng = np.random.default_rng(0)
    true = stats.norm.cdf(1 / math.sqrt(2 + 0.4**2))
    naive = []
    for _ in range(200):
        groups = targets(rng, 4, luck=0.4)
        naive.append(auc(np.concatenate([s for s, _ in groups]), np.concatenate([m for _, m in groups])))
    assert covers(naive, true) < 0.8


def test_the_mean_over_targets_has_the_t_interval_of_their_values():
    rng = np.random.default_rng(0)
    groups = targets(rng, 6, luck=0.3)
    expected = mean([auc(*group).value for group in groups], bounds=(0, 1))
    estimate = clustered(auc, groups, rng)
    assert (estimate.value, estimate.low, estimate.high, estimate.n, estimate.note) == (
        pytest.approx(expected.value),
        pytest.approx(expected.low),
        pytest.approx(expected.high),
        6,
        None,
    )


def test_resampling_a_pooled_mean_agrees_with_the_t_interval():
    # With targets of equal size the pooled share found is the mean of their shares.
    rng = np.random.default_rng(0)
    groups = [(scores > 0.5, member) for scores, member in targets(rng, 5, luck=0.3)]

    def share_found(decisions, member):
        return Estimate(float(decisions[member].mean()), None, None, len(member))

    exact = mean([share_found(*group).value for group in groups], bounds=(0, 1))
    resampled = clustered(share_found, groups, rng, draws=5000, pool=True)
    assert resampled.value == pytest.approx(exact.value)
    assert resampled.high - resampled.low == pytest.approx(exact.high - exact.low, rel=0.05)


def test_one_target_keeps_the_interval_of_its_records_and_says_so():
    rng = np.random.default_rng(0)
    (group,) = targets(rng, 1, luck=0.3)
    one = auc(*group)
    for pool in (False, True):
        estimate = clustered(auc, [group], rng, pool=pool)
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx((one.value, one.low, one.high))
        assert (estimate.n, estimate.note) == (1, RECORDS_ONLY)


@pytest.mark.parametrize("pool", [False, True])
def test_targets_that_all_say_member_are_chance_and_not_certain(pool):
    groups = [(np.ones(40, dtype=bool), np.arange(40) < 20)] * 4
    estimate = clustered(balanced_accuracy, groups, np.random.default_rng(0), draws=20, pool=pool)
    assert estimate.value == 0.5
    assert estimate.low < 0.5 < estimate.high
    assert estimate.note == RECORDS_ONLY


def test_pooling_resolves_a_rate_that_no_target_resolves():
    rng = np.random.default_rng(0)
    groups = targets(rng, 10, luck=0.1, records=200)
    at_one_in_a_thousand = partial(tpr_at_fpr, fpr=0.001)
    assert "cannot resolve" in clustered(at_one_in_a_thousand, groups, rng).note
    pooled = clustered(at_one_in_a_thousand, groups, rng, draws=100, pool=True)
    assert 0 <= pooled.low < pooled.value < pooled.high <= 1


def test_the_same_seed_gives_the_same_pooled_interval():
    groups = targets(np.random.default_rng(0), 3, luck=0.3)
    first, second = (clustered(auc, groups, np.random.default_rng(1), 20, pool=True) for _ in range(2))
    assert first == second


def test_the_paired_interval_agrees_with_scipy_and_needs_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=8), rng.normal(size=8)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    estimate = paired(list(a), list(b))
    assert (estimate.low, estimate.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    with pytest.raises(ValueError, match="shorter"):
        paired([1.0, 2.0], [1.0])


def test_the_paired_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(2000, 6))
    a, b = common + rng.normal(0.2, 0.1, (2000, 6)), common + rng.normal(0, 0.1, (2000, 6))
    assert covers([paired(x, y) for x, y in zip(a, b)], 0.2) == pytest.approx(0.95, abs=0.015)


def test_the_difference_of_aucs_has_delongs_covariance():
    """The structural components summed pair by pair, as DeLong, DeLong and Clarke-Pearson write them."""
    rng = np.random.default_rng(0)
    member = np.arange(50) < 20
    a, b = rng.normal(member * 1.0).round(1), rng.normal(member * 0.5).round(1)
    components = []
    for scores in (a, b):
        inside, outside = scores[member][:, None], scores[~member]
        wins = (inside > outside) + 0.5 * (inside == outside)
        components.append((wins.mean(axis=1), wins.mean(axis=0)))
    members, others = (np.cov([one[side] for one in components]) for side in (0, 1))
    covariance = members / 20 + others / 30
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    estimate = auc_difference(a, b, member)
    assert estimate.value == pytest.approx(roc_auc_score(member, a) - roc_auc_score(member, b))
    assert (estimate.high - estimate.low) / 2 == pytest.approx(1.959964 * math.sqrt(variance))


def test_the_difference_of_aucs_covers_and_is_tighter_than_two_separate_intervals():
    rng = np.random.default_rng(0)
    member = np.arange(200) < 100
    true = stats.norm.cdf(1 / math.sqrt(2)) - stats.norm.cdf(0.7 / math.sqrt(2))
    estimates, separate = [], []
    for _ in range(1500):
        common = rng.normal(0, math.sqrt(0.8), 200)
        a, b = (common + rng.normal(member * gap, math.sqrt(0.2)) for gap in (1.0, 0.7))
        estimates.append(auc_difference(a, b, member))
        separate.append(combined([auc(a, member), auc(b, member)], [1, -1]))
    assert covers(estimates, true) == pytest.approx(0.95, abs=0.02)
    assert np.mean([e.high - e.low for e in estimates]) < 0.6 * np.mean([e.high - e.low for e in separate])


def test_two_perfect_attacks_are_not_surely_equal_and_one_attack_equals_itself():
    member = np.arange(20) < 10
    perfect = auc_difference(member * 1.0, member * 2.0 + np.arange(20) / 100, member)
    assert perfect.value == 0.0
    assert perfect.low < 0.0 < perfect.high
    scores = np.random.default_rng(0).normal(size=20)
    same = auc_difference(scores, 3 * scores, member)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("right_a", "right_b", "shared"), [(0.7, 0.6, 0.6), (0.7, 0.7, 0.0), (0.95, 0.9, 0.5)]
)
def test_the_difference_of_decisions_covers(right_a, right_b, shared):
    # Made of exact intervals, it may cover more often than 95%.
    rng = np.random.default_rng(0)
    member = np.arange(120) < 50
    estimates = []
    for _ in range(700):
        common = rng.normal(0, math.sqrt(shared), 120)
        a, b = (
            (common + rng.normal(0, math.sqrt(1 - shared), 120) < stats.norm.ppf(right)) == member
            for right in (right_a, right_b)
        )
        estimates.append(decision_difference(a, b, member))
    assert covers(estimates, right_a - right_b) >= 0.93


def test_the_difference_of_decisions_is_that_of_the_balanced_accuracies():
    rng = np.random.default_rng(0)
    a, b, member = (rng.random(90) < share for share in (0.6, 0.4, 0.3))
    expected = balanced_accuracy_score(member, a) - balanced_accuracy_score(member, b)
    assert decision_difference(a, b, member).value == pytest.approx(expected)


def test_agreement_narrows_the_difference_and_disagreement_widens_it():
    member = np.arange(200) < 100
    a = (np.arange(200) % 10 < 7) == member
    shifted = (np.arange(200) % 10 >= 3) == member
    same, other = decision_difference(a, a, member), decision_difference(a, shifted, member)
    assert same.value == other.value == 0.0
    assert same.low <= 0.0 <= same.high
    assert same.high - same.low < 0.1 * (other.high - other.low)


def test_the_permutation_p_value_of_the_auc_agrees_with_the_rank_sum_test():
    rng = np.random.default_rng(0)
    member = np.arange(300) < 100
    scores = rng.normal(member * 0.15)
    null = permutation_null(auc, scores, member, rng, 5000)
    exact = stats.mannwhitneyu(scores[member], scores[~member], alternative="greater").pvalue
    assert null.p_value == pytest.approx(exact, abs=0.02)
    deviation = math.sqrt(301 / (12 * 100 * 200))
    assert null.mean == pytest.approx(0.5, abs=0.003)
    assert null.high == pytest.approx(0.5 + 1.645 * deviation, abs=0.004)


def test_ranks_taken_once_give_what_the_whole_auc_gives():
    rng = np.random.default_rng(0)
    member = np.arange(60) < 25
    scores = rng.normal(member * 0.3).round(1)
    fast = permutation_null(auc, scores, member, rng, 2000)
    slow = permutation_null(lambda s, m: auc(s, m), scores, member, rng, 2000)
    assert fast.p_value == pytest.approx(slow.p_value, abs=0.04)
    assert (fast.mean, fast.high) == (
        pytest.approx(slow.mean, abs=0.008),
        pytest.approx(slow.high, abs=0.015),
    )


def test_the_permutation_p_value_is_no_smaller_than_its_draws_allow_and_is_uniform_under_chance():
    rng = np.random.default_rng(0)
    member = np.arange(40) < 20
    assert permutation_null(auc, member * 1.0, member, rng, 99).p_value == 0.01
    assert permutation_null(balanced_accuracy, np.ones(40, dtype=bool), member, rng, 9).p_value == 1.0
    p_values = [permutation_null(auc, rng.random(40), member, rng, 99).p_value for _ in range(500)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_a_permutation_test_of_what_cannot_be_estimated_says_why():
    member = np.arange(40) < 20
    with pytest.raises(BadInput, match="20 non-members cannot resolve"):
        permutation_null(partial(tpr_at_fpr, fpr=0.001), np.arange(40.0), member, np.random.default_rng(0))
