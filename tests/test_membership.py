import dataclasses
import itertools
import math
import os
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
import torch
from conftest import make_images, make_model
from glasshouse.auditing.risk import risks
from glasshouse.auditing.scoring import score
from glasshouse.auditing.trial import Examination
from glasshouse.auditing.truth import Truth, establish
from torch import nn

from glasshouse.access import QueryAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.membership import bad
from glasshouse.attacks.membership.bad import MIABad, features
from glasshouse.attacks.membership.calibration import best_threshold
from glasshouse.attacks.membership.lira import LiRA, OnlineLiRA
from glasshouse.attacks.membership.rmia import RMIA, OnlineRMIA
from glasshouse.attacks.membership.sets import SetLLR, SetLoss, SetVote
from glasshouse.attacks.membership.shokri import Shokri
from glasshouse.attacks.membership.signals import asked, log_odds
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import make_setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import train_target
from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.errors import BadInput, CannotRun
from glasshouse.evidence.batches import compose
from glasshouse.evidence.labels import LabelCounts
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.source import Sources
from glasshouse.federation.shadows import Answers, Shadows
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import accuracy
from glasshouse.measures.membership import auc, balanced_accuracy, null_curve
from glasshouse.progress import Progress
from glasshouse.store import RunFolder
from glasshouse.studies.mia_bad.cells import raw_accuracy

PROTOCOLS = ("sample-sample", "batch-sample", "batch-batch")


def rng():
    return torch.Generator().manual_seed(0)


def numbered(first, y):
    """Images of a single pixel, by which a made-up model knows them: number `first` and on."""
    x = (first + torch.arange(len(y), dtype=torch.float32)).reshape(-1, 1, 1, 1)
    return Images(x, torch.as_tensor(y), 2)


def logits_of(odds, y):
    """Two logits for each record with these log-odds of its label, shape (..., N, 2)."""
    logits = np.zeros((*np.shape(odds), 2))
    np.put_along_axis(logits, np.broadcast_to(y, np.shape(odds))[..., None], np.asarray(odds)[..., None], -1)
    return logits


def answering(logits):
    """Access to a model that answers about the numbered images with these logits, shape (N, 2)."""
    return QueryAccess(lambda x: torch.from_numpy(logits)[x.flatten().long()].softmax(1))


def told(aux_odds, aux_inside, odds, inside, *, y=None, aux_y=None, tested=None, online=False, batches=None):
    """What an attack knows of candidates 0, 1, ... and auxiliary images after them.

    `aux_odds` and `odds`, shape (k, N), are the log-odds that shadow models give the records' labels, and
    the masks say which of them were trained on; the rest is for testing.
    """
    y = np.ones(np.shape(odds)[1], dtype=np.int64) if y is None else y
    aux_y = np.ones(np.shape(aux_odds)[1], dtype=np.int64) if aux_y is None else aux_y
    inside, aux_inside = np.asarray(inside), np.asarray(aux_inside)
    candidates, auxiliary = numbered(0, y), numbered(len(y), aux_y)
    shadows = Shadows(
        Answers(
            auxiliary,
            np.float32(logits_of(aux_odds, aux_y)),
            aux_inside,
            ~aux_inside if tested is None else tested,
        ),
        Answers(candidates, np.float32(logits_of(odds, y)), inside, ~inside),
        "made-up shadow models",
    )
    named = {"online_shadows" if online else "shadows": shadows}
    return Knowledge(candidates, auxiliary, batches, **named)


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
    knowledge = told(AUX_PHI, AUX_INSIDE, PHI, NONE_INSIDE)
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
    knowledge = told(AUX_PHI, np.zeros((4, 4), dtype=bool), PHI, INSIDE, online=True)
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
    knowledge = told(AUX_PHI, AUX_INSIDE, PHI, NONE_INSIDE)
    left_open, fixed = (
        attack.run(access, knowledge, rng()) for attack in (LiRA(), LiRA(fixed_variance=True))
    )
    assert (left_open.scores == fixed.scores).all()
    few = told(AUX_PHI[:3], AUX_INSIDE[:3], PHI[:3], NONE_INSIDE[:3])
    for attack in (LiRA(), RMIA()):
        with pytest.raises(CannotRun, match="3 shadow models"):
            attack.run(access, few, rng())
    few = told(AUX_PHI[:3], AUX_INSIDE[:3], PHI[:3], INSIDE[:3], online=True)
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
    knowledge = told(AUX_PHI, AUX_INSIDE, PHI, NONE_INSIDE)
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
    knowledge = told(AUX_PHI, aux_none, PHI, INSIDE, online=True)
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


def test_composed_batches_are_disjoint_and_have_their_share_of_members():
    inside, outside = np.arange(100), np.arange(100, 300)
    for size, share, members in ((8, 1.0, 8), (8, 0.5, 4), (8, 0.01, 1), (1, 0.2, 1), (5, 0.5, 2)):
        member, other = compose(inside, outside, size, share, np.random.default_rng(0))
        assert member.shape[1] == other.shape[1] == size
        assert ((member < 100).sum(1) == members).all()
        assert (other >= 100).all()
        every = np.concatenate([member.ravel(), other.ravel()])
        assert len(np.unique(every)) == len(every)
    member, other = compose(inside, outside, 8, 1.0, np.random.default_rng(0))
    assert (len(member), len(other)) == (12, 25)


def test_what_does_not_fill_batches_on_both_sides_cannot_run():
    for inside, outside, share in ((7, 100, 1.0), (100, 7, 1.0), (100, 11, 0.5), (0, 100, 1.0)):
        with pytest.raises(CannotRun, match=r"do not fill batches of 8"):
            compose(np.arange(inside), np.arange(outside), 8, share, np.random.default_rng(0))


def test_the_best_threshold_is_the_best_of_all_thresholds():
    for seed in range(40):
        draw = np.random.default_rng(seed)
        member = draw.permutation(30) < draw.integers(1, 30)
        scores = draw.integers(0, 8, 30) + (seed % 3) * member
        chosen = balanced_accuracy(scores >= best_threshold(scores, member), member).value
        best = max(balanced_accuracy(scores >= line, member).value for line in {*scores, np.inf})
        assert chosen == pytest.approx(best)


def planted(shift, *, count=300, shadows=4, batch=None, share=1.0, spread=0.0, offset=(0.0, 0.0), seed=0):
    """A world whose log-odds are Gaussian, `shift` higher where a model was trained on the record.

    Half of `count` candidates are members; `spread` is the deviation of the records' own difficulty and
    `offset` the mean log-odds of each of the two classes. Returns access, knowledge and who is a member.
    """
    draw = np.random.default_rng(seed)
    y, aux_y = draw.integers(0, 2, count), draw.integers(0, 2, count)
    member = draw.permutation(count) < count // 2
    aux_inside = np.stack([draw.permutation(count) < count // 2 for _ in range(shadows)])
    hard, aux_hard = (np.take(offset, own) + spread * draw.normal(size=count) for own in (y, aux_y))
    observed = hard + shift * member + draw.normal(size=count)
    odds = hard + draw.normal(size=(shadows, count))
    aux_odds = aux_hard + shift * aux_inside + draw.normal(size=(shadows, count))
    batches = None
    if batch is not None:
        sides = compose(np.flatnonzero(member), np.flatnonzero(~member), batch, share, draw)
        batches, member = np.concatenate(sides), np.repeat([True, False], [len(side) for side in sides])
    knowledge = told(
        aux_odds, aux_inside, odds, np.zeros_like(odds, dtype=bool), y=y, aux_y=aux_y, batches=batches
    )
    logits = logits_of(np.concatenate([observed, np.zeros(count)]), np.concatenate([y, aux_y]))
    return answering(logits), knowledge, member


class Noted:
    """Stands in for the attack model and notes what it is given."""

    def __init__(self, kind, given, member, generator):
        Noted.fitted, Noted.kind, Noted.member = given, kind, member

    def log_odds(self, given):
        Noted.asked = given
        return given[:, 0]


@pytest.mark.parametrize(("protocol", "attack_set", "questions"), [
    ("sample-sample", 4 * 300, 300), ("batch-sample", 4 * 2 * 18, 300), ("batch-batch", 4 * 2 * 18, 36),
])  # fmt: skip
def test_the_three_protocols_are_never_mixed(monkeypatch, protocol, attack_set, questions):
    monkeypatch.setattr(bad, "Classifier", Noted)
    attack = MIABad(protocol=protocol, batch_size=8)
    asks_batches = protocol == "batch-batch"
    assert attack.query_unit == (8 if asks_batches else 1)
    access, knowledge, member = planted(1.0, batch=8 if asks_batches else None)
    evidence = attack.run(access, knowledge, rng())
    assert Noted.fitted.shape == (attack_set, 1)
    assert Noted.member.sum() == attack_set // 2
    assert len(evidence.scores) == len(evidence.decisions) == len(member) == questions
    losses = -np.log(access.probabilities(knowledge.candidates.x).numpy())
    losses = losses[np.arange(300), knowledge.candidates.y.numpy()]
    expected = losses[knowledge.batches].mean(1) if asks_batches else losses
    np.testing.assert_allclose(evidence.scores, expected)


@pytest.mark.parametrize("protocol", ["batch-sample", "batch-batch"])
def test_the_attack_model_learns_from_batch_means_of_each_shadow(monkeypatch, protocol):
    monkeypatch.setattr(bad, "Classifier", Noted)
    access, knowledge, _ = planted(2.0, shadows=1, batch=10)
    MIABad(protocol=protocol, batch_size=10).run(access, knowledge, rng())
    answers = knowledge.shadows.auxiliary
    losses = features(answers.log_probabilities(0), answers.images, "loss")[:, 0]
    for side, mask in ((True, answers.inside[0]), (False, answers.tested[0])):
        # 150 records in 15 batches of 10: the mean of their means is the mean of all.
        assert Noted.fitted[Noted.member == side].mean() == pytest.approx(losses[mask].mean())
        assert Noted.fitted[Noted.member == side].std() < losses[mask].std() / 2


def test_an_auditor_asks_about_batches_only_where_the_protocol_does():
    setting = make_setting(
        {"data": {"clients": 3, "members": 30, "nonmembers": 30, "auxiliary": 40, "test": 20}}
    )
    experiment = prepare(setting, Dataset("stripes", make_images(120)), make_model())
    for protocol in PROTOCOLS:
        truth = establish(experiment, MIABad(protocol=protocol, batch_size=5), experiment.model, 0)
        if protocol != "batch-batch":
            assert truth.batches is None
            assert (truth.member == (truth.holder >= 0)).all()
            continue
        assert truth.batches.shape == (12, 5)
        held = truth.holder[truth.batches] >= 0
        assert (held.all(1) == truth.member).all()
        assert (held.any(1) == truth.member).all()
        half = establish(
            experiment, MIABad(protocol=protocol, batch_size=4, fraction=0.5), experiment.model, 0
        )
        shares = (half.holder[half.batches] >= 0).mean(1)
        assert set(shares[half.member]) == {0.5}
        assert set(shares[~half.member]) == {0.0}


def test_features_are_the_loss_or_the_sorted_confidences():
    log_probabilities = np.log([[0.2, 0.7, 0.1], [0.5, 0.2, 0.3]])
    images = Images(torch.zeros(2, 1, 1, 1), torch.tensor([0, 2]), 3)
    loss = features(log_probabilities, images, "loss")
    np.testing.assert_allclose(loss, -np.log([[0.2], [0.3]]))
    np.testing.assert_allclose(
        features(log_probabilities, images, "confidences"), [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]]
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("features", ["loss", "confidences"])
@pytest.mark.parametrize("classifier", ["network", "logistic"])
def test_mia_bad_finds_a_planted_signal(protocol, features, classifier):
    attack = MIABad(protocol=protocol, features=features, classifier=classifier, batch_size=8)
    batch = 8 if protocol == "batch-batch" else None
    access, knowledge, member = planted(4.0, batch=batch)
    evidence = attack.run(access, knowledge, rng())
    assert auc(evidence.scores, member).value > 0.9
    if protocol != "batch-sample":  # what it learned from batches is no threshold for single records
        assert balanced_accuracy(evidence.decisions, member).value > 0.8
    again = attack.run(access, knowledge, rng())
    assert (again.scores == evidence.scores).all()


@pytest.mark.parametrize("spec", [
    "mia-bad(protocol='batch')", "mia-bad(features='logits')", "mia-bad(classifier='forest')",
    "mia-bad(batch_size=0)", "mia-bad(fraction=0)", "mia-bad(fraction=1.5)", "shokri(classifier='svm')",
    "rmia(gamma=0.5)", "rmia(a=2)", "rmia-online(a=-1)", "set-loss(batch_size=0)", "set-llr(fraction=0.0)",
])  # fmt: skip
def test_options_out_of_range_are_refused_in_one_line(spec):
    with pytest.raises(BadInput) as refused:
        ATTACKS.make(spec)
    (message,) = str(refused.value).splitlines()
    option = spec.partition("(")[2].partition("=")[0]
    assert f"{option} = " in message


def with_auxiliary(knowledge, **changes):
    """The same knowledge with other answers about the auxiliary images."""
    answers = dataclasses.replace(knowledge.shadows.auxiliary, **changes)
    return dataclasses.replace(knowledge, shadows=dataclasses.replace(knowledge.shadows, auxiliary=answers))


@pytest.mark.parametrize("classifier", ["network", "logistic"])
def test_shokri_finds_what_differs_from_class_to_class(classifier):
    # Members of the second class get the confidences of non-members of the first, and the other way round.
    access, knowledge, member = planted(3.0, offset=(0.0, -3.0), count=400)
    attack = Shokri(classifier=classifier)
    found = attack.run(access, knowledge, rng())
    assert auc(found.scores, member).value > 0.9
    assert balanced_accuracy(found.decisions, member).value > 0.8
    images = knowledge.shadows.auxiliary.images
    mixed = dataclasses.replace(images, y=images.y[torch.randperm(400, generator=rng())])
    blind = attack.run(access, with_auxiliary(knowledge, images=mixed), rng())
    assert auc(blind.scores, member).value < 0.65


def test_shokri_judges_a_rare_class_with_all_classes_together():
    access, knowledge, _ = planted(3.0)
    images = knowledge.shadows.auxiliary.images
    rare = dataclasses.replace(images, y=torch.zeros(300, dtype=torch.long))
    evidence = Shokri(classifier="logistic").run(access, with_auxiliary(knowledge, images=rare), rng())
    assert np.isfinite(evidence.scores).all()
    changed = with_auxiliary(knowledge, tested=np.zeros((4, 300), dtype=bool))
    with pytest.raises(CannotRun, match="no test set"):
        Shokri().run(access, changed, rng())


@pytest.mark.parametrize("kind", [SetLoss, SetVote, SetLLR])
def test_attacks_on_sets_find_planted_members_and_fewer_of_them_less_well(kind):
    areas = []
    for share in (1.0, 0.5):
        access, knowledge, member = planted(1.2, count=1200, batch=8, share=share)
        evidence = kind(batch_size=8, fraction=share).run(access, knowledge, rng())
        assert len(evidence.scores) == len(member)
        areas.append(auc(evidence.scores, member))
        if share == 1.0:
            assert balanced_accuracy(evidence.decisions, member).low > 0.7
    whole, part = areas
    assert whole.low > 0.9
    assert part.low > 0.5
    assert part.high < whole.low


@pytest.mark.parametrize("kind", [SetLoss, SetVote, SetLLR])
def test_attacks_on_sets_find_nothing_where_nothing_is_planted(kind):
    access, knowledge, member = planted(0.0, count=1200, batch=8)
    evidence = kind(batch_size=8).run(access, knowledge, rng())
    area = auc(evidence.scores, member)
    assert area.low <= 0.5 <= area.high


def test_shadow_models_take_the_records_own_difficulty_out_of_a_set():
    access, knowledge, member = planted(1.0, count=1200, shadows=8, batch=8, spread=4.0)
    plain, calibrated = (
        auc(kind(batch_size=8).run(access, knowledge, rng()).scores, member) for kind in (SetLoss, SetLLR)
    )
    assert calibrated.low > plain.high


@pytest.mark.parametrize("batch", [4, 16])
def test_averaging_gaussian_scores_over_batches_follows_the_null_curve(batch):
    draw, half = np.random.default_rng(1), 4000
    distance = 0.3
    loss = 8 + draw.normal(size=2 * half) - distance * (np.arange(2 * half) < half)
    odds = -loss - np.log(-np.expm1(-loss))  # the log-odds of a label whose loss this is
    sides = compose(np.arange(half), np.arange(half, 2 * half), batch, 1.0, draw)
    knowledge = told(
        draw.normal(size=(4, 100)),
        np.tile(np.arange(100) < 50, (4, 1)),
        np.zeros((4, 2 * half)),
        np.zeros((4, 2 * half), dtype=bool),
        batches=np.concatenate(sides),
    )
    evidence = SetLoss(batch_size=batch).run(answering(logits_of(odds, 1)), knowledge, rng())
    found = auc(evidence.scores, np.repeat([True, False], [len(side) for side in sides]))
    single = NormalDist().cdf(distance / math.sqrt(2))
    assert found.low <= null_curve(single, batch) <= found.high
    assert found.low > single


def outsiders_specs():
    """Every membership attack of an outsider that the registry has, with batches of 8 where it uses any."""
    for name in ATTACKS:
        attack = ATTACKS.make(name)
        if attack.family != "membership" or QueryAccess not in attack.needs:
            continue
        if name == "mia-bad":
            yield from (f"mia-bad(protocol='{protocol}', batch_size=8)" for protocol in PROTOCOLS)
        elif attack.query_unit > 1:
            yield f"{name}(batch_size=8)"
        else:
            yield name


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A model trained on other digits than those in question, with shadows for an attack on it."""
    folder, progress = tmp_path_factory.mktemp("stranger"), Progress(quiet=True)
    setting = make_setting({
        "seed": 1,
        "data": {"clients": 1, "members": 400, "nonmembers": 400, "auxiliary": 400, "test": 500},
        "model": {"name": "mlp"},
        "training": {"rounds": 1, "epochs": 15, "optimiser": "adam", "lr": 0.002, "local_test": 0},
        "audit": {"shadows": 8, "central": False, "defences": ()},
    })  # fmt: skip
    experiment = prepare(setting)
    held = experiment.split
    elsewhere = dataclasses.replace(held, clients=(held.test[:400],), test=held.test[400:])
    with Engine(1) as engine:
        other = dataclasses.replace(experiment, split=elsewhere)
        trial = train_target(other, RunFolder(folder / "run", "x"), engine, progress, "fedavg", "none")
        yield (
            dataclasses.replace(trial, experiment=experiment),
            Shadowing(experiment, folder / "shadows", engine, progress),
        )


@pytest.mark.parametrize("spec", list(outsiders_specs()))
def test_a_model_that_saw_none_of_the_candidates_gives_away_nothing(stranger, spec):
    trial, shadowing = stranger
    own = trial.experiment.split
    trained_on = accuracy(trial.grantor.model, own.pool[own.test[:400]])
    assert trained_on > 0.99
    seen = trial.examine(spec, QueryAccess, shadowing)
    found = {result.metric: result for result in score(seen.evidence, seen.truth)}
    area = found["auc"].estimate
    assert area.low <= 0.5 <= area.high
    assert found["auc"].chance == 0.5
    balanced = found["balanced-accuracy"].estimate
    assert balanced.low <= 0.5 <= balanced.high


def truth_of(holder, batches=None, member=None, clients=2):
    holder = np.asarray(holder)
    inside = holder >= 0 if member is None else member
    counts = np.zeros((clients, 4))
    return Truth(make_images(len(holder)), holder, inside, counts, nn.Identity(), rng(), batches)


def test_always_saying_member_is_reported_as_chance():
    truth = truth_of(np.repeat([0, -1], [700, 300]))
    evidence = MembershipScores(np.zeros(1000), np.ones(1000, dtype=bool))
    found = {result.metric: result for result in score(evidence, truth)}
    assert found["balanced-accuracy"].estimate.value == found["balanced-accuracy"].chance == 0.5
    assert found["auc"].estimate.value == found["auc"].chance == 0.5
    assert found["advantage"].estimate.value == found["advantage"].chance == 0.0
    for data, ratio, shown in (("cifar10", 5, 0.833), ("mnist", 6, 0.857)):
        raw = raw_accuracy(Examination(evidence, truth, (), 0.0), data)
        assert raw.metric == f"accuracy-at-{ratio}:1"
        assert raw.estimate.value == pytest.approx(raw.chance)
        assert round(raw.chance, 3) == shown


def by_hand_auc(inside, outside):
    """The share of pairs in which the member scores higher; a tie counts half."""
    pairs = list(itertools.product(inside, outside))
    return mean((a > b) + (a == b) / 2 for a, b in pairs)


def test_risks_tell_whose_records_are_found_and_when():
    holder = np.repeat([0, 1, 2, -1], [6, 5, 4, 10])
    draw = np.random.default_rng(0)
    scores, first, last = draw.normal(size=(3, 25))
    by_client = draw.normal(size=(2, 25))  # client 2 was never seen
    evidence = MembershipScores(scores, scores > 0, by_client, {0: first, 3: last})
    rows = risks(evidence, truth_of(holder, clients=3))
    assert [(row["kind"], row["index"]) for row in rows] == [
        ("client", 0), ("client", 1), ("client", 2), ("round", 0), ("round", 3),
    ]  # fmt: skip
    used = [by_client[0], by_client[1], scores, first, last]
    members = [holder == 0, holder == 1, holder == 2, holder >= 0, holder >= 0]
    for row, own, member in zip(rows, used, members):
        assert row["value"] == pytest.approx(by_hand_auc(own[member], own[holder < 0]))
        assert row["low"] <= row["value"] <= row["high"]
        assert row["n"] == member.sum() + 10
        assert row["chance"] == 0.5


def test_an_attack_that_does_not_know_clients_apart_is_judged_by_its_one_score():
    holder = np.repeat([0, 1, -1], [5, 5, 10])
    scores = np.concatenate([np.full(5, 2.0), np.full(5, -2.0), np.zeros(10)])
    rows = risks(MembershipScores(scores, scores > 0), truth_of(holder))
    assert [(row["kind"], row["index"], row["value"]) for row in rows] == [
        ("client", 0, 1.0), ("client", 1, 0.0),
    ]  # fmt: skip


def test_batches_and_other_evidence_have_no_risks_by_client():
    batches, member = np.arange(8).reshape(2, 4), np.array([True, False])
    truth = truth_of(np.repeat([0, -1], 4), batches, member)
    assert risks(MembershipScores(np.zeros(2), member), truth) == []
    assert risks(LabelCounts(()), truth_of(np.repeat([0, -1], 4))) == []


def test_the_blind_guess_of_a_source_is_the_largest_client():
    holder = np.array([-1, 0, 1, 1, 1, 2, -1, 2, 1, 0])
    named = np.array([1, 0, 1, 1, 2, 2, 1, 0, 1, 1])
    (found,) = score(Sources(named), truth_of(holder, clients=3))
    assert found.metric == "source-accuracy"
    assert found.estimate.value == pytest.approx(5 / 8)
    assert found.estimate.n == 8
    assert found.chance == pytest.approx(4 / 8)
    (blind,) = score(Sources(np.ones(10, dtype=np.int64)), truth_of(holder, clients=3))
    assert blind.estimate.value == blind.chance


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(
    not os.environ.get("GLASSHOUSE_DATA"), reason="GLASSHOUSE_DATA does not name the folder of the real sets"
)
def test_records_learned_by_heart_are_found_and_best_by_lira_where_accusations_must_be_sure(tmp_path):
    setting = make_setting({
        "data": {
            "name": "cifar10", "clients": 1, "members": 1000, "nonmembers": 2000, "auxiliary": 2000,
            "test": 2000,
        },
        "model": {"name": "lenet"},
        "training": {"rounds": 1, "epochs": 60, "optimiser": "adam", "lr": 0.001, "local_test": 0},
        "audit": {
            "attacks": ("loss-threshold", "lira"), "defences": (), "central": False, "shadows": 16,
        },
    })  # fmt: skip
    progress = Progress(quiet=True)
    experiment = prepare(setting)
    with Engine() as engine:
        folder = RunFolder(tmp_path / "run", experiment.config())
        trial = train_target(experiment, folder, engine, progress, "fedavg", "none")
        shadowing = Shadowing(experiment, tmp_path / "shadows", engine, progress)
        found = {}
        for spec in setting.audit.attacks:
            seen = trial.examine(spec, QueryAccess, shadowing)
            rows = score(seen.evidence, seen.truth)
            found[spec] = {result.metric: result.estimate.value for result in rows}
    assert accuracy(trial.grantor.model, experiment.split.images("members")) >= 0.999
    assert found["loss-threshold"]["balanced-accuracy"] >= 0.65
    assert found["lira"]["tpr-at-1%-fpr"] > found["loss-threshold"]["tpr-at-1%-fpr"]
