"""Membership with few shadow models: shrunk variances, several scores as one, and no leak where none is."""

import numpy as np
import pytest
from planted import answering, knowing, logits_of, planted, rng
from scipy import stats
from scipy.special import polygamma

from glasshouse.attacks.membership import bavaria
from glasshouse.attacks.membership.bavaria import BaVarIA, OnlineBaVarIA, Prior, fitted, predicted
from glasshouse.attacks.membership.lira import LiRA, OnlineLiRA
from glasshouse.attacks.membership.rmia import RMIA, OnlineRMIA
from glasshouse.attacks.membership.stacked import STACKED, Stacked, Weighing, signals
from glasshouse.attacks.membership.threshold import LossThreshold
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.shadows import online_sets
from glasshouse.measures.membership import auc, tpr_at_fpr

OFFLINE, ONLINE = (LiRA, RMIA, BaVarIA), (OnlineLiRA, OnlineRMIA, OnlineBaVarIA)


def uneven(shift, *, freedom=3.0, spread=1.0, count=600, shadows=4, seed=0, online=False):
    """A world as `planted`, whose records have variances of their own, as of `freedom` degrees of freedom."""
    draw = np.random.default_rng(seed)
    member = draw.permutation(count) < count // 2
    hard, aux_hard = spread * draw.normal(size=(2, count))
    wide, aux_wide = np.sqrt(freedom / draw.chisquare(freedom, size=(2, count)))
    inside = np.zeros((shadows, count), dtype=bool)
    aux_inside = np.zeros_like(inside)
    if online:
        for row, chosen in zip(inside, online_sets(np.arange(count), shadows, draw)):
            row[chosen.train] = True
    else:
        aux_inside = np.stack([draw.permutation(count) < count // 2 for _ in range(shadows)])

    def answers(hard, wide, trained, models):
        return hard + shift * trained + wide * draw.normal(size=(models, count))

    observed = answers(hard, wide, member, 1)[0], answers(aux_hard, aux_wide, False, 1)[0]
    knowledge = knowing(
        answers(aux_hard, aux_wide, aux_inside, shadows),
        aux_inside,
        answers(hard, wide, inside, shadows),
        inside,
        online=online,
    )
    return answering(logits_of(np.concatenate(observed), 1)), knowledge, member


def mean_auc(attack, seeds=8, **world):
    """The mean AUC and TPR at 5% FPR over several worlds."""
    found = []
    for seed in range(seeds):
        access, knowledge, member = uneven(seed=seed, **world)
        scores = attack.run(access, knowledge, rng()).scores
        found.append((auc(scores, member).value, tpr_at_fpr(scores, member, 0.05).value))
    return np.mean(found, axis=0)


def test_the_prior_is_found_from_records_that_follow_it():
    draw = np.random.default_rng(0)
    variance = 2.0 * 6 / draw.chisquare(6, size=40_000)
    mean = 1.5 + draw.normal(size=40_000) * 3.0
    phi = mean + np.sqrt(variance) * draw.normal(size=(5, 40_000))
    prior = fitted(phi, np.ones(phi.shape, dtype=bool))
    assert prior.freedom == pytest.approx(6, rel=0.1)
    assert prior.variance == pytest.approx(2, rel=0.05)
    assert prior.mean == pytest.approx(1.5, abs=0.1)
    assert prior.weight == pytest.approx(2 / 9, rel=0.1)


def test_records_of_one_variance_get_one_variance_as_in_rmia():
    phi = np.random.default_rng(1).normal(size=(4, 3000))
    every = np.ones(phi.shape, dtype=bool)
    prior = fitted(phi, every)
    assert prior.freedom > 30
    scale = predicted(phi, every, prior).scale
    assert scale.std() / scale.mean() < 0.05


def test_without_a_prior_the_prediction_is_that_of_each_records_own_models_as_in_lira():
    phi = np.random.default_rng(2).normal(size=(5, 7))
    told = predicted(phi, np.ones(phi.shape, dtype=bool), Prior(1e-9, 1.0, 0.0, 1e-9))
    np.testing.assert_allclose(told.place, phi.mean(0), rtol=1e-6)
    np.testing.assert_allclose(told.scale**2, phi.var(0) * (1 + 1 / 5), rtol=1e-6)


def test_the_prediction_is_the_posterior_predictive_by_numerical_integration():
    prior, phi = Prior(4.0, 1.5, 0.5, 0.7), np.array([[1.0], [2.5], [0.2]])
    told = predicted(phi, np.ones((3, 1), dtype=bool), prior)
    mu, var = np.meshgrid(np.linspace(-12, 14, 1201), np.exp(np.linspace(-6, 7, 1200)))
    belief = stats.norm.pdf(mu, prior.mean, np.sqrt(var / prior.weight)) * var
    belief *= stats.invgamma.pdf(var, prior.freedom / 2, scale=prior.freedom * prior.variance / 2)
    for value in phi[:, 0]:
        belief *= stats.norm.pdf(value, mu, np.sqrt(var))
    for value in (-2.0, 0.7, 5.0):
        expected = (belief * stats.norm.pdf(value, mu, np.sqrt(var))).sum() / belief.sum()
        assert np.exp(told.log_density(np.array([value])))[0] == pytest.approx(expected, rel=1e-3)


def test_trigamma_is_inverted_from_tiny_to_huge():
    for x in (0.01, 0.5, 3.0, 1e4):
        assert bavaria.inverse_trigamma(float(polygamma(1, x))) == pytest.approx(x, rel=1e-8)


@pytest.mark.parametrize("shadows", [4, 8])
@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("freedom", [3.0, 1e6])
def test_with_few_shadows_bavaria_is_at_least_as_good_as_lira_and_rmia(shadows, online, freedom):
    world = {"shift": 1.5, "shadows": shadows, "online": online, "freedom": freedom}
    by_lira, by_rmia, ours = (
        mean_auc(attack(), seeds=4, **world) for attack in (ONLINE if online else OFFLINE)
    )
    assert (ours >= np.maximum(by_lira, by_rmia) - 0.01).all()
    if freedom == 3.0:
        assert (ours > by_lira + np.array([0.02, 0.05])).all()


def test_bavaria_refuses_too_few_shadows():
    access, knowledge, _ = uneven(1.0, shadows=3)
    with pytest.raises(CannotRun, match="3 shadow models"):
        BaVarIA().run(access, knowledge, rng())
    access, knowledge, _ = uneven(1.0, shadows=2, online=True)
    with pytest.raises(CannotRun, match="2 shadow models"):
        OnlineBaVarIA().run(access, knowledge, rng())
    with pytest.raises(BadInput, match="adaptive"):
        BaVarIA(adaptive="yes")


@pytest.mark.parametrize("shadows", [4, 8])
def test_several_scores_as_one_are_about_as_good_as_the_best_of_them(shadows):
    world = {"shift": 1.5, "shadows": shadows, "seeds": 4}
    parts = (LossThreshold(), LiRA(), RMIA(), BaVarIA())
    best = max(mean_auc(attack, **world)[0] for attack in parts)
    assert mean_auc(Stacked(), **world)[0] > best - 0.02


def test_the_weights_are_learned_on_shadow_models_and_point_where_members_are():
    access, knowledge, member = uneven(2.0, seed=3)
    known = knowledge.shadows.auxiliary
    weighing = Weighing.learned(known, 0.01)
    assert weighing.model.coef_.shape == (1, len(STACKED))
    answers = known.log_probabilities(0)
    found = signals(answers, known, known, np.arange(1, 4), answers, ~known.inside[0])
    fair = np.isfinite(found).all(1)
    assert auc(weighing.log_odds(found[fair]), known.inside[0][fair]).value > 0.75
    evidence = Stacked().run(access, knowledge, rng())
    assert auc(evidence.scores, member).value > 0.75
    np.testing.assert_array_equal(evidence.decisions, evidence.scores > 0)


def test_several_scores_as_one_know_nothing_where_shadow_models_learn_nothing():
    scores = [auc(Stacked().run(*uneven(0.0, seed=s)[:2], rng()).scores, uneven(0.0, seed=s)[2]).value
              for s in range(20)]  # fmt: skip
    assert np.mean(scores) == pytest.approx(0.5, abs=3 * 0.0236 / np.sqrt(20))  # 600 records: sd 0.0236


@pytest.mark.parametrize(
    "attack", [OnlineLiRA(), OnlineLiRA(fixed_variance=False), OnlineRMIA(), OnlineBaVarIA()]
)
def test_online_attacks_tell_nobody_from_anybody_where_nothing_leaks(attack):
    areas, margins = [], []
    for seed in range(200):
        access, knowledge, member = uneven(0.0, count=100, seed=seed, online=True)
        scores = attack.run(access, knowledge, rng()).scores
        areas.append(auc(scores, member).value)
        margins.append(stats.ks_2samp(scores[member], scores[~member]).pvalue)
    assert np.mean(areas) == pytest.approx(0.5, abs=3 * np.std(areas) / np.sqrt(200))
    assert np.mean(np.array(margins) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


@pytest.mark.parametrize("attack", [LiRA(), RMIA(), BaVarIA(), Stacked()])
def test_offline_attacks_tell_nobody_from_anybody_where_nothing_leaks(attack):
    areas = []
    for seed in range(50):
        access, knowledge, member = planted(0.0, count=100, seed=seed, spread=1.0)
        areas.append(auc(attack.run(access, knowledge, rng()).scores, member).value)
    assert np.mean(areas) == pytest.approx(0.5, abs=3 * np.std(areas) / np.sqrt(50))
