import doctest
import math
import time

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from glasshouse.measures import comparing, epsilon, estimate, membership
from glasshouse.measures.estimate import (
    Estimate,
    clopper_pearson,
    clustered_mean,
    combined,
    mean,
    proportion,
)
from glasshouse.measures.membership import (
    accuracy_at_mix,
    advantage,
    auc,
    balanced_accuracy,
    chance_at_fpr,
    majority_rate,
    null_curve,
    roc,
    tpr_at_fpr,
)


@pytest.mark.parametrize("module", [comparing, epsilon, estimate, membership])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0


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


def test_the_interval_of_the_auc_covers_what_the_distributions_give():
    rng = np.random.default_rng(0)
    member = np.arange(200) < 80
    true = stats.norm.cdf(1 / math.sqrt(2))
    estimates = [auc(rng.normal(member * 1.0), member) for _ in range(2000)]
    assert np.mean([e.low <= true <= e.high for e in estimates]) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_means_of_gaussian_scores_lie_on_the_null_curve(batch):
    rng = np.random.default_rng(0)
    single = stats.norm.cdf(0.3 / math.sqrt(2))
    member = np.arange(20_000) < 10_000
    batches = rng.normal(member * 0.3, size=(batch, 20_000)).mean(axis=0)
    assert null_curve(single, batch) == pytest.approx(auc(batches, member).value, abs=0.01)


def test_the_null_curve_maps_an_interval_end_by_end_and_keeps_what_is_missing():
    curve = null_curve(Estimate(0.6, 0.0, 1.0, 10), 9)
    assert (curve.value, curve.low, curve.high, curve.n) == (null_curve(0.6, 9), 0.0, 1.0, 10)
    missing = Estimate(None, None, None, 3, "too few")
    assert null_curve(missing, 9) == missing


def test_always_saying_member_is_chance_whatever_the_mix():
    member = np.arange(60) < 50
    estimate = balanced_accuracy(np.ones(60, dtype=bool), member)
    assert estimate.value == 0.5
    assert estimate.low < 0.5 < estimate.high


def test_always_saying_member_has_no_advantage():
    estimate = advantage(np.ones(60, dtype=bool), np.arange(60) < 50)
    assert estimate.value == 0.0
    assert estimate.low < 0.0 < estimate.high


@pytest.mark.parametrize("mix", [0.1, 0.3, 1, 2.5, 5, 7])
@pytest.mark.parametrize("says_member", [False, True])
def test_naming_the_more_frequent_side_is_chance_at_every_mix(mix, says_member):
    estimate = accuracy_at_mix(np.full(60, says_member), np.arange(60) < 20, mix)
    share = (mix if says_member else 1) / (mix + 1)
    assert estimate.value == pytest.approx(share)
    if (mix >= 1) == says_member:
        assert estimate.value == majority_rate(mix)
        assert estimate.low < majority_rate(mix) < estimate.high


def test_advantage_and_accuracy_restate_the_balanced_accuracy():
    rng = np.random.default_rng(0)
    decisions, member = rng.random(90) < 0.6, rng.random(90) < 0.4
    balanced = balanced_accuracy(decisions, member)
    lead, even = advantage(decisions, member), accuracy_at_mix(decisions, member, 1)
    for end in ("value", "low", "high"):
        assert getattr(lead, end) == pytest.approx(2 * getattr(balanced, end) - 1)
        assert getattr(even, end) == pytest.approx(getattr(balanced, end))


def test_the_accuracy_at_the_measured_mix_is_the_plain_accuracy():
    rng = np.random.default_rng(0)
    decisions, member = rng.random(90) < 0.6, np.arange(90) < 75
    assert accuracy_at_mix(decisions, member, 5).value == pytest.approx((decisions == member).mean())


def test_advantage_and_accuracy_cover_their_true_values():
    # The exact intervals they are made of are cautious, so they may cover more often than 95%.
    rng = np.random.default_rng(0)
    member = np.arange(100) < 50
    draws = [np.where(member, rng.random(100) < 0.7, rng.random(100) < 0.4) for _ in range(1000)]
    leads = [advantage(decisions, member) for decisions in draws]
    shares = [accuracy_at_mix(decisions, member, 4) for decisions in draws]
    assert np.mean([e.low <= 0.3 <= e.high for e in leads]) >= 0.93
    assert np.mean([e.low <= (4 * 0.7 + 0.6) / 5 <= e.high for e in shares]) >= 0.93


def test_a_combination_says_nothing_where_a_part_says_nothing():
    known, missing = Estimate(0.5, 0.4, 0.6, 10), Estimate(None, None, None, 5, "too few")
    assert combined([known, missing], [1, 1]) == Estimate(None, None, None, 15, "too few")
    assert combined([known, Estimate(0.25, None, None, 1)], [1, -1]) == Estimate(0.25, None, None, 11)


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


@pytest.mark.parametrize("fpr", [0.01, 0.001, 0.0001])
def test_low_rates_of_many_records_are_read_quickly_and_below_the_resolution_not_at_all(fpr):
    rng = np.random.default_rng(0)
    member = np.arange(20_000) < 10_000
    scores = rng.normal(member * 1.0)
    true = stats.norm.sf(stats.norm.isf(fpr) - 1)
    start = time.perf_counter()
    estimate = tpr_at_fpr(scores, member, fpr)
    assert time.perf_counter() - start < 0.5
    assert estimate.low <= true <= estimate.high
    few = np.arange(20_000) < 20_001 - round(1 / fpr)
    assert tpr_at_fpr(scores, few, fpr).value is None


@pytest.mark.parametrize("nonmembers", [20, 150, 1000])
def test_the_threshold_ranks_are_the_last_surely_strict_and_the_first_surely_loose(nonmembers):
    rank = np.arange(1, nonmembers + 1)
    rate = stats.beta(rank, nonmembers + 1 - rank)
    strict, loose = membership._surely_strict_and_loose(nonmembers, 0.05)
    assert strict == (rate.sf(0.05) <= membership.FPR_TAIL).sum()
    assert loose == nonmembers + 1 - (rate.cdf(0.05) <= membership.FPR_TAIL).sum()


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


def test_the_interval_of_the_area_covers_with_few_records_and_near_one():
    rng = np.random.default_rng(0)
    for members, others, shift in ((31, 125, 2.5), (31, 125, 3.5), (15, 31, 2.5), (60, 60, 0.0)):
        member = np.arange(members + others) < members
        true = stats.norm.cdf(shift / math.sqrt(2))
        covered = [
            estimate.low <= true <= estimate.high
            for estimate in (auc(rng.normal(size=len(member)) + shift * member, member) for _ in range(800))
        ]
        assert 0.92 <= np.mean(covered) <= 0.985


def test_equal_scores_have_no_interval_and_say_why():
    estimate = auc(np.zeros(20), np.arange(20) < 8)
    assert (estimate.value, estimate.low, estimate.high) == (0.5, None, None)
    assert "equal" in estimate.note


def test_a_mean_on_the_only_bound_has_no_interval():
    estimate = mean([0.0] * 5, bounds=(0.0, math.inf))
    assert (estimate.value, estimate.low, estimate.high) == (0.0, None, None)
    assert "bound" in estimate.note


def test_the_mean_of_repeated_values_is_as_sure_as_that_of_the_values_once():
    values = np.random.default_rng(0).normal(3, 1, 8)
    once, twice = mean(values.tolist()), clustered_mean([*values, *values], np.tile(np.arange(8), 2))
    assert twice.n == 8
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high))
    assert clustered_mean(values.tolist(), np.arange(8)) == once


def test_the_interval_of_clusters_of_several_sizes_covers_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(20), [1, 2] * 10)
    drawn = [clustered_mean((rng.normal(1, 2, 20)[clusters]).tolist(), clusters) for _ in range(2000)]
    assert np.mean([e.low <= 1 <= e.high for e in drawn]) == pytest.approx(0.95, abs=0.02)


def test_clusters_on_one_bound_have_the_exact_interval_of_what_they_are_worth_and_one_has_none():
    sure = clustered_mean([100.0] * 6, np.array([0, 0, 1, 1, 2, 2]), bounds=(0.0, 100.0))
    assert (sure.low, sure.high, sure.n) == (pytest.approx(100 * 0.025 ** (1 / 3)), 100.0, 3)
    alone = clustered_mean([1.0, 3.0], np.array([7, 7]))
    assert (alone.value, alone.low, alone.high, alone.n) == (2.0, None, None, 1)
