import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import access_to, finished, question_about, question_about_labels, scores
from conftest import CLASSES, SHAPE, make_images, make_model, make_plain_model, make_split
from torch import nn

from glasshouse.access import AggregateAccess, Protocol, QueryAccess, ServerAccess, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.saturated_head import SaturatedHead
from glasshouse.attacks.labels.counts import LabelCountsFromUpdates, count_labels
from glasshouse.attacks.labels.head import find_head
from glasshouse.attacks.membership.threshold import Gap, LossThreshold
from glasshouse.auditing.examine import examine
from glasshouse.defences import make_defences
from glasshouse.errors import CannotRun
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.strategies.fedavg import FedSGD
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.labels import overlap, whole_counts

RNG = torch.Generator()


def counts_of(evidence):
    """The labels counted, client by client."""
    return [counted.counts.tolist() for counted in evidence.counted]


def test_every_attack_declares_its_family_its_access_and_what_it_is_told():
    known = {field.name for field in dataclasses.fields(Knowledge)}
    for name in ATTACKS:
        attack = ATTACKS.make(name)
        assert attack.family
        assert attack.needs
        assert set(attack.knows) <= known
        assert type(attack).__doc__


def test_the_gap_attack_has_half_the_gap_as_its_advantage():
    model, images = make_plain_model(), make_images(40)
    right = predict(model, images.x).argmax(1) == images.y
    member = np.arange(40) < 25
    access = QueryAccess(lambda x: predict(model, x).softmax(1))
    evidence = Gap().run(access, Knowledge(images), RNG)
    value = scores(evidence, question_about(images, member))["balanced-accuracy"].estimate.value
    gap = right[:25].double().mean() - right[25:].double().mean()
    assert value == pytest.approx(0.5 + gap.item() / 2)


def test_the_loss_threshold_scores_are_negative_losses_and_accuse_half_of_the_auxiliary_records():
    model, images = make_plain_model(), make_images(41)
    access = QueryAccess(lambda x: predict(model, x).softmax(1))
    evidence = LossThreshold().run(access, Knowledge(images, images), RNG)
    losses = F.cross_entropy(predict(model, images.x), images.y, reduction="none")
    np.testing.assert_allclose(evidence.scores, -losses.numpy(), rtol=1e-5)
    assert evidence.decisions.sum() == 20


def test_the_loss_threshold_finds_members_that_were_learned_by_heart(engine):
    split = make_split((20,), others=300)
    noisy = split.pool
    labels = torch.randint(0, CLASSES, noisy.y.shape, generator=torch.Generator().manual_seed(0))
    split = dataclasses.replace(split, pool=dataclasses.replace(noisy, y=labels))
    case = finished(engine, split=split, recipe=Recipe(epochs=600, batch_size=10, lr=0.2))
    area, *_ = examine(case, "loss-threshold", QueryAccess).scores
    assert area.metric == "auc"
    assert area.estimate.low > 0.8


def test_a_model_that_never_saw_the_candidates_gives_them_away_no_more_than_chance(engine):
    case = finished(engine, split=make_split((60,)), recipe=Recipe(epochs=50, batch_size=10, lr=0.1))
    strangers = make_images(400, seed=9)
    question = question_about(strangers, np.random.default_rng(0).permutation(400) < 200)
    for attack in (Gap(), LossThreshold()):
        knowledge = Knowledge(strangers, make_images(100, seed=10))
        evidence = attack.run(access_to(case, QueryAccess), knowledge, RNG)
        area = scores(evidence, question)["auc"].estimate
        assert area.value == 0.5 if area.low is None else area.low <= 0.5 <= area.high


def test_one_sample_gives_its_label_away_exactly(engine):
    for seed in range(5):
        split = make_split((1, 1, 1, 1))
        case = finished(engine, model=make_plain_model(seed), split=split, strategy=FedSGD())
        evidence = LabelCountsFromUpdates().run(access_to(case, UpdateAccess), Knowledge(), RNG)
        for counted in evidence.counted:
            assert (counted.counts == case.truth.label_counts[counted.clients[0]]).all()


def test_a_head_of_zeros_makes_the_linear_system_exact(engine):
    model = make_plain_model()
    with torch.no_grad():
        model[-1].weight.zero_()
        model[-1].bias.zero_()
    case = finished(engine, model=model, split=make_split((37, 22, 11)), strategy=FedSGD())
    evidence = LabelCountsFromUpdates().run(access_to(case, UpdateAccess), Knowledge(), RNG)
    assert [tuple(counted.counts) for counted in evidence.counted] == [
        tuple(row) for row in case.truth.label_counts
    ]


def test_a_model_that_knows_its_labels_leaves_nothing_to_count(engine):
    case = finished(engine, split=make_split((40,)), recipe=Recipe(epochs=300, batch_size=10, lr=0.2))
    (counted,) = LabelCountsFromUpdates().run(access_to(case, UpdateAccess), Knowledge(), RNG).counted
    assert counted.counts.tolist() == [10, 10, 10, 10]


def test_an_update_that_leaves_the_biases_as_they_were_tells_no_class_apart():
    model = make_plain_model()
    layout = Layout.of(model)
    head = find_head(Protocol(model, layout, Recipe(), SHAPE, CLASSES))
    delta = torch.ones(layout.size)
    layout.named(delta)[head.bias].zero_()
    assert count_labels(layout, head, read_vector(model), delta, 0.1, 40, 1).tolist() == [10, 10, 10, 10]


def test_the_sum_of_the_updates_gives_the_labels_of_all_clients_together(engine):
    case = finished(engine, split=make_split((37, 22, 11)), strategy=FedSGD())
    (counted,) = LabelCountsFromUpdates().run(access_to(case, AggregateAccess), Knowledge(), RNG).counted
    assert counted.clients == (0, 1, 2)
    assert overlap(counted.counts, case.truth.label_counts.sum(0)) > 0.9


@pytest.mark.parametrize(("sizes", "recipe"), [
    ((37, 22, 11), Recipe(epochs=1, batch_size=0, lr=0.1)),
    ((40, 20, 10), Recipe(epochs=3, batch_size=10, lr=0.05)),
])  # fmt: skip
@pytest.mark.parametrize("network", [make_plain_model, make_model])
def test_a_saturated_head_counts_labels_exactly_through_local_epochs(engine, network, sizes, recipe):
    case = finished(engine, model=network(), split=make_split(sizes), recipe=recipe)
    evidence = SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), RNG)
    assert [tuple(counted.counts) for counted in evidence.counted] == [
        tuple(row) for row in case.truth.label_counts
    ]


def test_a_smaller_last_batch_leaves_the_counts_nearly_exact(engine):
    sizes = (37, 28, 33, 26, 46, 55, 68, 29)
    case = finished(engine, split=make_split(sizes), recipe=Recipe(epochs=3, batch_size=10, lr=0.1))
    evidence = SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), RNG)
    shares = [overlap(counted.counts, own) for counted, own in zip(evidence.counted, case.truth.label_counts)]
    assert np.mean(shares) > 0.97


def test_clipping_does_not_stop_a_saturated_head(engine):
    case = finished(
        engine,
        split=make_split((40, 20, 10)),
        recipe=Recipe(epochs=2, batch_size=10, lr=0.1),
        defence="clipping(norm=0.01)",
    )
    evidence = SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), RNG)
    assert [tuple(counted.counts) for counted in evidence.counted] == [
        tuple(row) for row in case.truth.label_counts
    ]


def test_noise_does_stop_a_saturated_head(engine):
    case = finished(engine, split=make_split((40, 20, 10)), defence="gaussian-noise(std=1.0)")
    evidence = SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), RNG)
    assert [tuple(counted.counts) for counted in evidence.counted] != [
        tuple(row) for row in case.truth.label_counts
    ]


@pytest.mark.parametrize("defence", [
    "gaussian-noise(std=0.1)", "clipping(norm=0.5)+laplacian-noise(scale=0.05)", "dp-sgd(norm=1.0,noise=2.0)",
])  # fmt: skip
def test_a_saturated_head_that_knows_of_noise_averages_it_over_rounds(engine, defence):
    recipe = Recipe(epochs=2, batch_size=10, lr=0.1)
    case = finished(engine, split=make_split((40, 20, 10)), recipe=recipe, defence=defence)

    def right(attack):
        evidence = attack.run(access_to(case, ServerAccess), Knowledge(defence=make_defences(defence)), RNG)
        return np.mean([overlap(k.counts, row) for k, row in zip(evidence.counted, case.truth.label_counts)])

    assert right(SaturatedHead(adaptive=True, repeats=100)) > max(0.95, right(SaturatedHead()))


def test_label_attacks_say_why_they_do_not_apply(engine):
    headless = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES, bias=False))
    case = finished(engine, model=headless)
    with pytest.raises(CannotRun, match="linear layer with a bias"):
        LabelCountsFromUpdates().run(access_to(case, UpdateAccess), Knowledge(), RNG)
    case = finished(engine, recipe=Recipe(lr=5e-324))
    with pytest.raises(CannotRun, match="divided by the learning rate, is not finite"):
        LabelCountsFromUpdates().run(access_to(case, AggregateAccess), Knowledge(), RNG)
    case = finished(engine, recipe=Recipe(optimiser="adam", lr=0.01))
    with pytest.raises(CannotRun, match="adam"):
        SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), RNG)


def test_a_hidden_layer_is_not_taken_for_the_head(engine):
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, CLASSES), nn.ReLU(), nn.Linear(CLASSES, CLASSES, bias=False)
    )
    case = finished(engine, model=model)
    with pytest.raises(CannotRun, match="linear layer with a bias"):
        LabelCountsFromUpdates().run(access_to(case, UpdateAccess), Knowledge(), RNG)


def test_examples_that_move_too_far_or_are_no_images_are_not_scored():
    images = make_images(4)
    question = question_about(images, model=make_model().eval())
    with pytest.raises(CannotRun, match=r"more than its eps = 0\.01"):
        AdversarialExamples((images.x + 0.5).clamp(0, 1)[None], (0.01,)).judge(question)
    with pytest.raises(CannotRun, match=r"in \[0, 1\]"):
        AdversarialExamples(images.x[None] - 5, (10.0,)).judge(question)


def test_a_guess_that_happens_to_be_exact_counts_as_chance():
    question = question_about_labels([[2, 2, 2, 2]])
    exact = scores(LabelCounts((CountedLabels((0,), np.array([2, 2, 2, 2])),)), question)["exact-counts"]
    assert (exact.estimate.value, exact.chance) == (1.0, 1.0)


def test_whole_counts_are_proportional_and_add_up():
    assert whole_counts(np.array([1.0, 1.0, 1.0]), 10).tolist() == [4, 3, 3]
    assert whole_counts(np.array([0.0, 0.0]), 3).sum() == 3
    assert whole_counts(np.array([-1.0, 3.0]), 6).tolist() == [0, 6]


def test_label_scores_know_the_blind_guess():
    question = question_about_labels([[8, 0, 0, 0], [2, 2, 2, 2]])
    evidence = LabelCounts(
        (CountedLabels((0,), np.array([6, 2, 0, 0])), CountedLabels((1,), np.array([2, 2, 2, 2])))
    )
    shares, exact = evidence.judge(question).scores
    assert shares.estimate.value == pytest.approx((0.75 + 1) / 2)
    assert shares.chance == pytest.approx((0.25 + 1) / 2)
    assert exact.estimate.value == 0.5


def test_membership_scores_report_chance_for_constant_scores():
    member = np.arange(300) < 250
    evidence = MembershipScores(np.zeros(300), np.ones(300, dtype=bool))
    judged = scores(evidence, question_about(make_images(300), member))
    values = {metric: score.estimate.value for metric, score in judged.items()}
    assert (values["auc"], values["balanced-accuracy"], values["advantage"]) == (0.5, 0.5, 0.0)
    assert values["tpr-at-1%-fpr"] is None
    assert values["epsilon"] == 0.0
