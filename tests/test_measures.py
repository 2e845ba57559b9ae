import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from glasshouse.measures.estimate import clopper_pearson, mean, proportion
from glasshouse.measures.membership import auc, balanced_accuracy, chance_at_fpr, roc, tpr_at_fpr


def test_exact_intervals_match_their_closed_form_at_the_ends():
    assert clopper_pearson(0, 20) == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert clopper_pearson(20, 20) == (pytest.approx(0.025 ** (1 / 20)), 1.0)


def test_exact_intervals_cover_at_least_as_often_as_they_say():
    rng = np.random.default_rng(0)
    intervals = [clopper_pearson(int(k), 40) for k in rng.binomial(40, 0.3, 2000)]
    assert np.mean([low <= 0.3 <= high for low, high in intervals]) >= 0.95


def test_the_t_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    estimates = [mean(list(rng.normal(1, 2, 5))) for _ in range(2000)]
    assert np.mean([e.low <= 1 <= e.high for e in estimates]) == pytest.approx(0.95, abs=0.015)


def test_a_mean_of_one_has_no_interval_and_a_mean_at_its_bound_a_cautious_one():
    assert (mean([0.3]).low, mean([0.3]).high) == (None, None)
    sure = mean([1.0] * 10, bounds=(0, 1))
    assert (sure.value, sure.low, sure.high) == (1.0, pytest.approx(0.025 ** (1 / 10)), 1.0)


@pytest.mark.parametrize("ties", [False, True])
def test_auc_agrees_with_scikit_learn(ties):
    rng = np.random.default_rng(0)
    member = rng.random(300) < 0.4
    scores = rng.normal(member * 0.5)
    scores = scores.round(0) if ties else scores
    assert auc(scores, member).value == pytest.approx(roc_auc_score(member, scores))


def test_random_scores_give_an_auc_of_one_half_within_the_interval():
    rng = np.random.default_rng(0)
    estimates = [auc(rng.random(200), np.arange(200) < 80) for _ in range(1000)]
    assert np.mean([e.value for e in estimates]) == pytest.approx(0.5, abs=0.01)
    assert np.mean([e.low <= 0.5 <= e.high for e in estimates]) == pytest.approx(0.95, abs=0.02)


def test_always_saying_member_is_chance_whatever_the_mix():
    member = np.arange(60) < 50
    estimate = balanced_accuracy(np.ones(60, dtype=bool), member)
    assert estimate.value == 0.5
    assert estimate.low < 0.5 < estimate.high


def test_balanced_accuracy_covers_its_true_value():
    rng = np.random.default_rng(0)
    member = np.arange(100) < 50
    covered = []
    for _ in range(1000):
        decisions = np.where(member, rng.random(100) < 0.7, rng.random(100) < 0.4)
        estimate = balanced_accuracy(decisions, member)
        covered.append(estimate.low <= 0.65 <= estimate.high)
    assert np.mean(covered) >= 0.94


def test_the_true_positive_rate_is_read_where_few_enough_are_falsely_accused():
    outside = np.arange(100.0)
    inside = np.array([98.5, 97.5, 50.0, 200.0])
    scores = np.concatenate([inside, outside])
    member = np.arange(104) < 4
    assert tpr_at_fpr(scores, member, 0.01).value == 0.5
    assert tpr_at_fpr(scores, member, 0.02).value == 0.75


def test_scores_that_tell_nothing_reach_the_rate_of_chance_and_show_no_leak():
    rng = np.random.default_rng(0)
    member = np.arange(500) < 200
    estimates = [tpr_at_fpr(rng.random(500), member, 0.01) for _ in range(1000)]
    chance = chance_at_fpr(300, 0.01)
    assert np.mean([e.value for e in estimates]) == pytest.approx(chance, abs=0.001)
    assert np.mean([e.low > chance for e in estimates]) <= 0.025


def test_the_interval_of_the_true_positive_rate_covers_what_the_distributions_give():
    rng = np.random.default_rng(0)
    true = stats.norm.sf(stats.norm.isf(0.05) - 1)
    member = np.arange(800) < 400
    estimates = [tpr_at_fpr(rng.normal(member * 1.0), member, 0.05) for _ in range(500)]
    assert np.mean([e.low <= true <= e.high for e in estimates]) >= 0.95
    assert np.mean([e.low > 0.06 for e in estimates]) > 0.9


def test_perfect_separation_of_few_records_is_no_certainty():
    estimate = auc(np.array([3.0, 4.0, 1.0, 2.0]), np.array([True, True, False, False]))
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(0.025**0.5)


def test_a_rate_below_the_resolution_is_not_estimable():
    estimate = tpr_at_fpr(np.arange(60.0), np.arange(60) < 10, 0.01)
    assert estimate.value is None
    assert "50 non-members cannot resolve" in estimate.note


def test_the_area_under_the_roc_points_is_the_auc():
    rng = np.random.default_rng(0)
    member = rng.random(200) < 0.5
    scores = rng.normal(member * 1.0)
    fpr, tpr = roc(scores, member)
    assert np.trapezoid(tpr, fpr) == pytest.approx(auc(scores, member).value)


def test_a_proportion_carries_its_n():
    share = proportion(3, 12)
    assert (share.value, share.n) == (0.25, 12)
    assert share.low < 0.25 < share.high
    assert not math.isnan(share.low)
