"""Rank correlations and slopes, against definitions and by their coverage."""

import numpy as np
import pytest
from scipy import stats

from glasshouse.measures.trends import pearson, rank_correlation, slope


def test_rank_correlation_is_pearsons_of_the_ranks():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 30))
    y = y + x
    expected = np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]
    estimate = rank_correlation(x.tolist(), y.tolist())
    assert estimate.value == pytest.approx(expected)
    assert estimate.low < estimate.value < estimate.high
    assert estimate.n == 30


def test_the_interval_covers_the_true_rank_correlation():
    rng = np.random.default_rng(1)
    pearson = 0.6
    true = 6 / np.pi * np.arcsin(pearson / 2)  # of a bivariate normal
    covered = 0
    for _ in range(400):
        x, noise = rng.normal(size=(2, 40))
        y = pearson * x + np.sqrt(1 - pearson**2) * noise
        estimate = rank_correlation(x.tolist(), y.tolist())
        covered += estimate.low <= true <= estimate.high
    assert 0.91 <= covered / 400 <= 0.98


def test_what_cannot_be_estimated_says_so():
    assert "fewer than 4" in rank_correlation([1, 2, 3], [1, 2, 3]).note
    assert "does not vary" in rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]).note
    perfect = rank_correlation([1, 2, 3, 4], [4, 3, 2, 1])
    assert perfect.value == -1
    assert perfect.low is None


def test_slope_is_that_of_the_least_squares_line():
    x, y = [1.0, 2.0, 4.0], [3.0, 1.0, 2.0]
    assert slope(x, y) == pytest.approx(stats.linregress(x, y).slope)
    assert slope([2, 2], [1, 3]) is None


def test_pearsons_r_has_the_published_interval_of_fishers_z():
    rng = np.random.default_rng(5)
    x = rng.normal(size=40)
    y = 0.6 * x + rng.normal(size=40)
    estimate, reference = pearson(x.tolist(), y.tolist()), stats.pearsonr(x, y)
    interval = reference.confidence_interval(0.95)
    assert estimate.value == pytest.approx(reference.statistic)
    assert (estimate.low, estimate.high) == pytest.approx((interval.low, interval.high))
    assert estimate.n == 40


def test_pearsons_r_says_why_it_has_no_value_or_interval():
    assert "fewer than 4" in pearson([1, 2, 3], [1, 2, 3]).note
    assert "does not vary" in pearson([1, 2, 3, 4], [5, 5, 5, 5]).note
    assert "on a line" in pearson([1, 2, 3, 4], [8, 6, 4, 2]).note
