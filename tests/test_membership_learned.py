"""Membership attacks that learn from shadow models, or ask about sets of records."""

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from planted import PROTOCOLS, answering, knowing, logits_of, planted, rng

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.membership import bad
from glasshouse.attacks.membership.bad import MIABad, features
from glasshouse.attacks.membership.classifier import Classifier
from glasshouse.attacks.membership.sets import SetLLR, SetLoss, SetVote
from glasshouse.attacks.membership.shokri import Shokri
from glasshouse.data.images import Images
from glasshouse.errors import BadInput, CannotRun
from glasshouse.evidence.batches import compose
from glasshouse.measures.membership import auc, balanced_accuracy, null_curve


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
    knowledge = knowing(
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


def test_who_interrupts_while_the_attack_model_learns_is_heard(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sklearn.neural_network.MLPClassifier._update_no_improvement_count", interrupted)
    records, member = np.linspace(0, 1, 40)[:, None], np.arange(40) % 2 == 0
    with pytest.raises(KeyboardInterrupt):
        Classifier("network", records, member, torch.Generator().manual_seed(0))
