import math

import numpy as np
import pytest

from glasshouse.measures.epsilon import epsilon_lower_bound, fair_coins


def randomised_response(rng, member, eps):
    """Each membership bit told truly with odds e^eps: exactly eps-DP, and nothing tells more."""
    return (member ^ (rng.random(len(member)) < 1 / (1 + math.exp(eps)))).astype(float)


@pytest.mark.parametrize("eps", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("records", [40, 400])
@pytest.mark.parametrize("fixed", [False, True])
def test_the_bound_exceeds_the_true_epsilon_in_at_most_five_percent(eps, records, fixed):
    rng = np.random.default_rng(0)
    bounds = []
    for _ in range(250):
        member = rng.permutation(records) < records // 2 if fixed else rng.random(records) < 0.5
        bounds.append(epsilon_lower_bound(randomised_response(rng, member, eps), member, rng).value)
    assert np.mean(np.array(bounds) > eps) <= 0.05
    assert min(bounds) >= 0


@pytest.mark.parametrize("members", [0.5, 0.2])
def test_many_records_bring_the_bound_close_to_the_true_epsilon(members):
    rng = np.random.default_rng(0)
    member = rng.random(20_000) < members
    estimate = epsilon_lower_bound(randomised_response(rng, member, 2.0), member, rng)
    assert 1.7 < estimate.value <= 2.0
    assert (estimate.low, estimate.high) == (estimate.value, None)
    assert "one-sided" in estimate.note


def test_constant_scores_and_too_few_records_bound_nothing():
    rng = np.random.default_rng(0)
    member = np.arange(400) < 200
    bounds = [epsilon_lower_bound(np.zeros(400), member, rng).value for _ in range(200)]
    assert np.mean(np.array(bounds) > 0) <= 0.05
    for few in (1, 2, 8):
        member = np.arange(few) < few // 2
        assert epsilon_lower_bound(member * 1.0, member, rng).value == 0.0


def test_scores_that_point_the_wrong_way_bound_nothing():
    rng = np.random.default_rng(0)
    member = np.arange(1000) < 500
    assert epsilon_lower_bound(-(member * 1.0), member, rng).value == 0.0


@pytest.mark.parametrize(("inside", "outside"), [(60, 60), (200, 40)])
def test_the_balanced_part_holds_as_many_members_as_fair_coins_would(inside, outside):
    rng = np.random.default_rng(0)
    member = np.arange(inside + outside) < inside
    kept = [fair_coins(member * 1.0, member, rng)[1] for _ in range(2000)]
    (size,) = {len(part) for part in kept}
    counts = [int(part.sum()) for part in kept]
    assert np.mean(counts) == pytest.approx(size / 2, rel=0.02)
    assert np.var(counts) == pytest.approx(size / 4, rel=0.12)
    assert size > min(inside, outside)
