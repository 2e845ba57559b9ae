import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from glasshouse.measures.epsilon import epsilon_lower_bound
from glasshouse.measures.families import (
    AnyMechanism,
    Gaussian,
    SampledGaussian,
    by_trade_off,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_inverse,
)
from glasshouse.measures.one_run import one_run_bound

DELTA = 1e-5
CANARIES = 2000


def gaussian_scores(rng, member, epsilon):
    """Each canary's coin with normal noise: exactly epsilon at delta for adding or removing one."""
    mu = brentq(lambda mu: gaussian_epsilon(mu, DELTA) - epsilon, 1e-3, 50)
    return member + rng.normal(size=len(member)) / mu


def response_scores(rng, member, epsilon):
    return member ^ (rng.random(len(member)) < 1 / (1 + math.exp(epsilon)))


def laplace_scores(rng, member, epsilon):
    return member + rng.laplace(scale=1 / epsilon, size=len(member))


def sampled_scores(rng, member, noise, rate, steps):
    """The log-likelihood ratio of a coin whose canary takes part in a step with the chance `rate`."""
    taking_part = (rng.random((steps, len(member))) < rate) & member
    seen = taking_part + noise * rng.normal(size=taking_part.shape)
    return np.log1p(rate * np.expm1((2 * seen - 1) / (2 * noise**2))).sum(0)


def bounds_of(simulate, family, *, coins=True, trainings=200, canaries=CANARIES):
    rng = np.random.default_rng(1)
    bounds = []
    for _ in range(trainings):
        member = rng.random(canaries) < 0.5 if coins else rng.permutation(canaries) < canaries // 2
        scores = np.asarray(simulate(rng, member), dtype=float)
        bounds.append(one_run_bound(scores, member, rng, family=family, delta=DELTA, coins=coins).value)
    return np.array(bounds)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("canaries", [100, 2000])
def test_the_bound_exceeds_the_epsilon_of_a_gaussian_mechanism_in_at_most_five_percent(epsilon, canaries):
    bounds = bounds_of(lambda rng, m: gaussian_scores(rng, m, epsilon), Gaussian(), canaries=canaries)
    assert (bounds > epsilon).sum() <= 10


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_the_bound_of_a_gaussian_mechanism_says_something_and_more_than_the_others(epsilon):
    def simulate(rng, member):
        return gaussian_scores(rng, member, epsilon)

    bounds = bounds_of(simulate, Gaussian(), trainings=50)
    whatever = bounds_of(simulate, AnyMechanism(delta=DELTA), trainings=50)
    rng = np.random.default_rng(1)
    pure = []
    for _ in range(50):
        member = rng.random(CANARIES) < 0.5
        pure.append(epsilon_lower_bound(simulate(rng, member), member, rng).value)
    assert bounds.mean() >= 0.4 * epsilon
    assert bounds.mean() > 1.2 * np.mean(pure)
    assert bounds.mean() > 1.2 * whatever.mean()


@pytest.mark.parametrize("scores", [response_scores, laplace_scores])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_without_assumptions_the_bound_exceeds_epsilon_in_at_most_five_percent(scores, epsilon):
    bounds = bounds_of(lambda rng, m: scores(rng, m, epsilon), AnyMechanism(delta=DELTA), canaries=500)
    assert (bounds > epsilon).sum() <= 10
    assert bounds.mean() > 0.3 * epsilon


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "trainings"),
    [
        (1.0, 0.25, 4, 20),
        pytest.param(1.0, 0.25, 4, 200, marks=pytest.mark.slow),
        pytest.param(0.8, 0.1, 10, 200, marks=pytest.mark.slow),
    ],
)
def test_the_bound_exceeds_the_epsilon_of_sampled_sums_in_at_most_five_percent(noise, rate, steps, trainings):
    family = SampledGaussian(noise=noise, rate=rate, steps=steps)
    bounds = bounds_of(
        lambda rng, m: sampled_scores(rng, m, noise, rate, steps), family, trainings=trainings, canaries=1000
    )
    epsilon = family.epsilon(1.0, DELTA)
    assert (bounds > epsilon).mean() <= 0.05
    assert bounds.mean() > 0.15 * epsilon  # sampling hides most of it in rare outcomes


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_signed_scores_bound_the_exchange_of_two_and_exceed_it_in_at_most_five_percent(epsilon):
    mu = brentq(lambda mu: gaussian_epsilon(mu, DELTA) - epsilon, 1e-3, 50)
    rng, exchange = np.random.default_rng(2), Gaussian().exchanging()
    bounds = []
    for _ in range(200):
        coins = rng.random(500) < 0.5
        scores = np.where(coins, 1, -1) + rng.normal(size=500) / mu  # an exchange moves a score by 2
        found = one_run_bound(scores, coins, rng, family=exchange, delta=DELTA, coins=True, signed=True)
        bounds.append(found.value)
    assert (np.array(bounds) > epsilon).sum() <= 10
    assert np.mean(bounds) > 0.2 * epsilon


def test_where_all_signs_are_right_more_is_shown_than_by_the_ranks_of_unequally_many():
    rng = np.random.default_rng(0)
    coins = np.arange(200) < 110
    scores = np.where(coins, 1.0, -1.0)
    by_rank, by_sign = (
        one_run_bound(scores, coins, rng, family=Gaussian(), delta=DELTA, coins=True, signed=signed).value
        for signed in (False, True)
    )
    assert by_sign > by_rank > 0
    ties = one_run_bound(np.zeros(200), coins, rng, family=Gaussian(), delta=DELTA, coins=True, signed=True)
    assert ties.value == 0.0


def test_where_the_number_of_members_is_fixed_the_bound_holds_for_adding_or_removing_one():
    # Noise on the sum of all coins is common knowledge here: an exchange of two leaves it what it is.
    bounds = bounds_of(lambda rng, m: gaussian_scores(rng, m, 2.0), Gaussian(), coins=False)
    assert (bounds > 2.0).sum() <= 10
    assert 0 < bounds.mean() < 1.0  # an exchange moves two coordinates, each bound is of half that


def test_a_training_with_epsilon_one_stays_below_one():
    rng = np.random.default_rng(5)
    member = rng.random(4000) < 0.5
    bound = one_run_bound(
        gaussian_scores(rng, member, 1.0), member, rng, family=Gaussian(), delta=DELTA, coins=True
    )
    assert 0.2 < bound.value < 1.0
    assert (bound.low, bound.high, bound.n) == (bound.value, None, 4000)
    assert "one-sided" in bound.note
    assert "delta 1e-05" in bound.note


@pytest.mark.parametrize("family", [Gaussian(), AnyMechanism(delta=DELTA)])
def test_constant_reversed_and_too_few_scores_bound_nothing(family):
    rng = np.random.default_rng(0)
    member = rng.random(400) < 0.5
    ties = [
        one_run_bound(np.zeros(400), member, rng, family=family, delta=DELTA, coins=True).value
        for _ in range(100)
    ]
    assert np.mean(np.array(ties) > 0) <= 0.05
    for scores, inside in ((-1.0 * member, member), (np.arange(4.0), np.arange(4) > 1)):
        assert one_run_bound(scores, inside, rng, family=family, delta=DELTA, coins=True).value == 0.0


@pytest.mark.parametrize("guesses", [40, 200])
def test_of_mechanisms_without_delta_the_trade_off_asks_at_least_what_the_binomial_does(guesses):
    # Epsilon-DP, of which randomised response is the worst: its tail is what the recursion may not undercut.
    epsilon, canaries = 1.0, 200
    odds = math.exp(epsilon)
    unlikely = by_trade_off(lambda y: max(0.0, y / odds, 1 - odds * (1 - y)))
    share = odds / (1 + odds)
    for right in range(guesses // 2, guesses):
        tail = stats.binom.sf(right - 1, guesses, share)
        if guesses == canaries and tail > 1e-6:
            assert not unlikely(right, guesses, canaries, tail * 0.999)
    assert unlikely(guesses, guesses, canaries, 0.05)


def test_a_trade_off_without_privacy_is_never_refuted_and_perfect_privacy_is_a_fair_coin():
    assert not by_trade_off(lambda y: 0.0)(100, 100, 100, 0.05)
    blind = by_trade_off(gaussian_inverse(0.0))
    # Fair coins reach 58 of 100 in 6.7% of cases, 62 in 1.05%.
    assert not blind(58, 100, 100, stats.binom.sf(57, 100, 0.5))
    assert blind(70, 100, 100, 0.05)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_epsilon_and_delta_of_gaussian_dp_agree_with_numerical_integration(mu):
    x = np.linspace(-12, 12 + mu, 200_001)
    for epsilon in (0.0, 0.5, 2.0):
        excess = np.maximum(stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x), 0)
        assert gaussian_delta(mu, epsilon) == pytest.approx(np.trapezoid(excess, x), rel=1e-4, abs=1e-12)
    assert gaussian_delta(mu, gaussian_epsilon(mu, DELTA)) == pytest.approx(DELTA, rel=1e-6)


def test_the_trade_off_of_sums_without_sampling_is_that_of_one_gaussian():
    sums, one = SampledGaussian(noise=4.0, rate=1.0, steps=16), Gaussian()
    assert sums.epsilon(1.0, DELTA) == pytest.approx(one.epsilon(1.0, DELTA), rel=1e-3)
    for strength in (0.2, 0.5):
        for exchanged in (False, True):
            both = [
                (family.exchanging() if exchanged else family).unlikely(strength) for family in (sums, one)
            ]
            least = [
                next(right for right in range(100, 201) if unlikely(right, 200, 400, 0.01))
                for unlikely in both
            ]
            assert abs(least[0] - least[1]) <= 1
