import math
from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from glasshouse.errors import BadInput
from glasshouse.measures.comparing import (
    auc_difference,
    mean_difference,
    permutation_null,
    rate_difference,
    share_difference,
    tpr_difference,
)
from glasshouse.measures.estimate import combined, mean
from glasshouse.measures.membership import advantage, auc, balanced_accuracy, tpr_at_fpr


def covers(estimates, true):
    return np.mean([e.low <= true <= e.high for e in estimates])


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
def test_the_difference_of_shares_covers(right_a, right_b, shared):
    # Made of exact intervals, it may cover more often than 95%.
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(700):
        common = rng.normal(0, math.sqrt(shared), 120)
        a, b = (
            common + rng.normal(0, math.sqrt(1 - shared), 120) < stats.norm.ppf(right)
            for right in (right_a, right_b)
        )
        estimates.append(share_difference(a, b))
    assert covers(estimates, right_a - right_b) >= 0.93


def test_agreement_narrows_the_difference_and_disagreement_widens_it():
    a, shifted = np.arange(200) % 10 < 7, np.arange(200) % 10 >= 3
    same, other = share_difference(a, a), share_difference(a, shifted)
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


def two_attacks(rng, count):
    """Scores of a strong and a weaker attack on the same records, and who is a member."""
    member = np.arange(2 * count) < count
    shared = rng.normal(size=2 * count) + member
    return shared + 0.6 * rng.normal(size=2 * count), 0.7 * shared + 0.9 * rng.normal(size=2 * count), member


def test_the_difference_of_rates_is_that_of_the_balanced_accuracies():
    a, b, member = two_attacks(np.random.default_rng(0), 300)
    one, other = a > 0.5, b > 0.5
    found = rate_difference(one, other, member)
    balanced = [balanced_accuracy(decisions, member) for decisions in (one, other)]
    assert found.value == pytest.approx(balanced[0].value - balanced[1].value)
    twice = rate_difference(one, other, member, 1.0)
    assert twice.value == pytest.approx(advantage(one, member).value - advantage(other, member).value)
    unpaired = combined(balanced, [1.0, -1.0])
    assert found.high - found.low < unpaired.high - unpaired.low


def test_the_interval_of_a_true_positive_rates_difference_covers_it():
    rng = np.random.default_rng(1)
    a, b, member = two_attacks(rng, 200_000)
    truth = tpr_at_fpr(a, member, 0.05).value - tpr_at_fpr(b, member, 0.05).value
    covered = 0
    for _ in range(100):
        found = tpr_difference(*two_attacks(rng, 150), 0.05, rng, draws=200)
        covered += found.low <= truth <= found.high
    assert covered >= 88  # of 95 expected: fewer once in a thousand


def test_a_true_positive_rate_that_cannot_be_resolved_has_no_difference():
    a, b, member = two_attacks(np.random.default_rng(2), 50)
    rng = np.random.default_rng(0)
    assert tpr_difference(a, b, member, 0.001, rng) is None
    assert tpr_difference(a, a, member, 0.1, rng) is None


def test_the_difference_of_means_is_that_of_the_paired_values():
    a, b = np.array([30.0, 20.0, 25.0]), np.array([28.0, 19.0, 22.0])
    found = mean_difference(a, b, np.arange(3))
    assert found == mean([2.0, 1.0, 3.0])
