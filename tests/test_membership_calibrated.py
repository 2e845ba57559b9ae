"""Membership attacks that compare a model with shadow models, against computations by hand."""

import math
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
from planted import answering, knowing, logits_of, numbered, rng

from glasshouse.attacks.membership.lira import LiRA, OnlineLiRA
from glasshouse.attacks.membership.rmia import RMIA, OnlineRMIA
from glasshouse.attacks.membership.signals import asked, best_threshold
from glasshouse.errors import CannotRun
from glasshouse.federation.shadows import log_odds
from glasshouse.measures.membership import balanced_accuracy

PHI = [[0.5, 2.0, -1.0], [1.5, 3.5, -2.0], [1.0, 2.5, 0.5], [-1.0, 4.0, -0.5]]
"""Log-odds of 3 candidates under 4 shadow models."""
OBSERVED = [2.0, 2.5, -0.25]
INSIDE = [[True, False, True], [False, True, False], [True, True, False], [False, False, True]]
NONE_INSIDE = [[False] * 3] * 4
AUX_PHI = [[3.0, 0.5, 1.0, 2.0], [0.0, 2.5, -0.5, 1.0], [0.5, -1.0, 3.5, 0.25], [-0.5, 1.5, 0.75, 4.0]]
AUX_INSIDE = [[k == record for record in range(4)] for k in range(4)]
AUX_OBSERVED = [1.0, -2.0, 0.25, 1.25]


def by_hand_gaussian(phi, mask, fixed):
    """Mean and standard deviation of each record over the models in the mask, in plain Python."""
    columns = [[row[record] for row, use in zip(phi, mask) if use[record]] for record in range(len(phi[0]))]
    deviations = [stdev(column) for column in columns]
    if fixed:
        free = sum(len(column) - 1 for column in columns)
        squares = sum((value - mean(column)) ** 2 for column in columns for value in column)
        deviations = [math.sqrt(squares / free)] * len(columns)
    return [(mean(column), deviation) for column, deviation in zip(columns, deviations)]


def inverted(mask):
    return [[not entry for entry in row] for row in mask]


def without(rows, k):
    return [row for number, row in enumerate(rows) if number != k]


def by_hand_threshold(scores, member):
    """The score from which on to say "member", by trying each; the highest of the best."""

    def right(line):
        hits = [s >= line for s in scores]
        of_members = [hit for hit, m in zip(hits, member) if m]
        of_others = [not hit for hit, m in zip(hits, member) if not m]
        return round(mean(of_members) + mean(of_others), 9)

    return max(sorted(set(scores), reverse=True), key=right)


@pytest.mark.parametrize("fixed", [True, False])
def test_offline_lira_counts_deviations_above_the_models_without_the_record(fixed):
    knowledge = knowing(AUX_PHI, AUX_INSIDE, PHI, NONE_INSIDE)
    access = answering(logits_of(OBSERVED + AUX_OBSERVED, 1))
    evidence = LiRA(fixed_variance=fixed).run(access, knowledge, rng())
    gaussians = by_hand_gaussian(PHI, inverted(NONE_INSIDE), fixed)
    expected = [(own - mu) / sigma for own, (mu, sigma) in zip(OBSERVED, gaussians)]
    assert evidence.scores.tolist() == pytest.approx(expected)
    scores, member = [], []
    for k in range(4):
        outside = inverted(without(AUX_INSIDE, k))
        models = by_hand_gaussian(without(AUX_PHI, k), outside, fixed)
        scores += [(own - mu) / sigma for own, (mu, sigma) in zip(AUX_PHI[k], models)]
        member += AUX_INSIDE[k]
    line = by_hand_threshold(scores, member)
    assert evidence.decisions.tolist() == [own >= line for own in expected]


@pytest.mark.parametrize("fixed", [True, False])
def test_online_lira_is_the_log_ratio_of_two_gaussians(fixed):
    knowledge = knowing(AUX_PHI, np.zeros((4, 4), dtype=bool), PHI, INSIDE, online=True)
    evidence = OnlineLiRA(fixed_variance=fixed).run(answering(logits_of(OBSERVED, 1)), knowledge, rng())
    sides = [by_hand_gaussian(PHI, mask, fixed) for mask in (INSIDE, inverted(INSIDE))]
    expected = [
        math.log(NormalDist(*seen).pdf(own) / NormalDist(*unseen).pdf(own))
        for own, seen, unseen in zip(OBSERVED, *sides)
    ]
    assert evidence.scores.tolist() == pytest.approx(expected)
    assert evidence.decisions.tolist() == [own > 0 for own in expected]


def test_lira_takes_one_variance_for_all_with_few_shadows_and_asks_for_four():
    access = answering(logits_of(OBSERVED + AUX_OBSERVED, 1))
    knowledge = knowing(AUX_PHI, AUX_INSIDE, PHI, NONE_INSIDE)
    left_open, fixed = (
        attack.run(access, knowledge, rng()) for attack in (LiRA(), LiRA(fixed_variance=True))
    )
    assert (left_open.scores == fixed.scores).all()
    few = knowing(AUX_PHI[:3], AUX_INSIDE[:3], PHI[:3], NONE_INSIDE[:3])
    for attack in (LiRA(), RMIA()):
        with pytest.raises(CannotRun, match="3 shadow models"):
            attack.run(access, few, rng())
    few = knowing(AUX_PHI[:3], AUX_INSIDE[:3], PHI[:3], INSIDE[:3], online=True)
    with pytest.raises(CannotRun, match="3 shadow models"):
        OnlineLiRA().run(access, few, rng())


def sigmoid(odds):
    return 1 / (1 + math.exp(-odds))


def by_hand_offline_mean(column, mask, a):
    """RMIA's mean probability of one record from the models that never saw it."""
    p = mean(sigmoid(value) for value, seen in zip(column, mask) if not seen)
    return ((1 + a) * p + 1 - a) / 2


def by_hand_shares(ratios, population, gamma):
    """The shares, and a billionth to tell equal ones apart."""
    return [
        mean(float(own / other >= gamma) for other in population) + 1e-9 * own / (1 + own) for own in ratios
    ]


def columns_of(rows):
    return [list(column) for column in zip(*rows)]


@pytest.mark.parametrize(("gamma", "a"), [(1.0, 0.3), (2.0, 0.3), (1.2, 0.9), (1.2, 0.0)])
def test_offline_rmia_is_the_share_of_the_population_whose_ratio_is_exceeded(gamma, a):
    knowledge = knowing(AUX_PHI, AUX_INSIDE, PHI, NONE_INSIDE)
    evidence = RMIA(gamma=gamma, a=a).run(answering(logits_of(OBSERVED + AUX_OBSERVED, 1)), knowledge, rng())

    def ratios(observed, phi, inside):
        columns = zip(observed, columns_of(phi), columns_of(inside))
        return [sigmoid(own) / by_hand_offline_mean(column, mask, a) for own, column, mask in columns]

    population = ratios(AUX_OBSERVED, AUX_PHI, AUX_INSIDE)
    expected = by_hand_shares(ratios(OBSERVED, PHI, NONE_INSIDE), population, gamma)
    assert evidence.scores.tolist() == pytest.approx(expected)
    scores, member = [], []
    for k in range(4):
        own = ratios(AUX_PHI[k], without(AUX_PHI, k), without(AUX_INSIDE, k))
        scores += by_hand_shares(own, [r for r, seen in zip(own, AUX_INSIDE[k]) if not seen], gamma)
        member += AUX_INSIDE[k]
    line = by_hand_threshold(scores, member)
    assert evidence.decisions.tolist() == [own >= line for own in expected]


@pytest.mark.parametrize(("gamma", "a"), [(1.0, 0.3), (1.5, 0.7)])
def test_online_rmia_averages_models_with_and_without_the_record(gamma, a):
    aux_none = [[False] * 4] * 4
    knowledge = knowing(AUX_PHI, aux_none, PHI, INSIDE, online=True)
    evidence = OnlineRMIA(gamma=gamma, a=a).run(
        answering(logits_of(OBSERVED + AUX_OBSERVED, 1)), knowledge, rng()
    )

    def ratios(observed, phi, inside):
        made = []
        for own, column, mask in zip(observed, columns_of(phi), columns_of(inside)):
            sides = [
                mean(sigmoid(value) for value, seen in zip(column, mask) if seen == wanted)
                for wanted in (True, False)
            ]
            made.append(sigmoid(own) / mean(sides))
        return made

    def population(observed, phi):
        pairs = zip(observed, columns_of(phi))
        return [
            sigmoid(own) / by_hand_offline_mean(column, [False] * len(column), a) for own, column in pairs
        ]

    expected = by_hand_shares(ratios(OBSERVED, PHI, INSIDE), population(AUX_OBSERVED, AUX_PHI), gamma)
    assert evidence.scores.tolist() == pytest.approx(expected)
    scores, member = [], []
    for k in range(4):
        own = ratios(PHI[k], without(PHI, k), without(INSIDE, k))
        scores += by_hand_shares(own, population(AUX_PHI[k], without(AUX_PHI, k)), gamma)
        member += INSIDE[k]
    line = by_hand_threshold(scores, member)
    assert evidence.decisions.tolist() == [own >= line for own in expected]


@pytest.mark.parametrize("odds", [-600.0, -40.0, 0.25, 40.0, 300.0])
def test_log_odds_are_exact_where_a_probability_rounds_to_one(odds):
    images = numbered(0, [1])
    found = log_odds(asked(answering(logits_of([odds], 1)), images), images.y)
    assert found.tolist() == pytest.approx([odds], rel=1e-12)


@pytest.mark.parametrize("odds", [-2000.0, 2000.0])
def test_log_odds_stay_finite_where_a_probability_rounds_to_zero(odds):
    images = numbered(0, [1])
    (found,) = log_odds(asked(answering(logits_of([odds], 1)), images), images.y)
    assert 600 < abs(found) < 2000
    assert found * odds > 0


def test_the_best_threshold_is_the_best_of_all_thresholds():
    for seed in range(40):
        draw = np.random.default_rng(seed)
        member = draw.permutation(30) < draw.integers(1, 30)
        scores = draw.integers(0, 8, 30) + (seed % 3) * member
        chosen = balanced_accuracy(scores >= best_threshold(scores, member), member).value
        best = max(balanced_accuracy(scores >= line, member).value for line in {*scores, np.inf})
        assert chosen == pytest.approx(best)
