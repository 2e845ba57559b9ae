import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import access_to, finished
from conftest import CLASSES, make_images, make_model, make_plain_model, make_split
from torch import nn

from glasshouse.access import AggregateAccess, Protocol, SeenUpdates, UpdateAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.labels.head import last_linear
from glasshouse.attacks.membership.alignment import GradientAlignment, alignments
from glasshouse.attacks.membership.readings import Records
from glasshouse.attacks.membership.trajectory import LossTrajectory, SourceInference, claims
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.updates import Update
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.membership import auc
from glasshouse.models.vit import vit

RNG = torch.Generator()
SERVER_ATTACKS = [LossTrajectory(), GradientAlignment(), GradientAlignment(layers="head")]


def protocol_of(model, recipe=None):
    """What the server of a federation of `model` knows."""
    return Protocol(model, Layout.of(model), recipe or Recipe(), (1, 8, 8), CLASSES)


@pytest.fixture(scope="module")
def leaky():
    """Two rounds of four clients whose records have random labels, so that only rote can tell them."""
    split = make_split((24, 20, 16, 20), others=160)
    labels = torch.randint(0, CLASSES, split.pool.y.shape, generator=torch.Generator().manual_seed(0))
    split = dataclasses.replace(split, pool=dataclasses.replace(split.pool, y=labels))
    with Engine(1) as engine:
        recipe = Recipe(epochs=40, batch_size=8, lr=0.1, momentum=0.5)
        case = finished(engine, split=split, recipe=recipe, rounds=2)
    curious, blind = (access_to(case, kind) for kind in (UpdateAccess, AggregateAccess))
    return curious, blind, Knowledge(case.truth.candidates, case.auxiliary), case.truth.holder, split


@pytest.mark.parametrize("network", [make_plain_model, make_model])
@pytest.mark.parametrize("layers", ["all", "head"])
def test_alignment_is_the_product_with_each_records_own_gradient(network, layers):
    model, images = network().eval(), make_images(9)
    protocol = protocol_of(model)
    sent = read_vector(model)
    directions = torch.randn(3, len(sent), generator=torch.Generator().manual_seed(1))
    head = last_linear(protocol) if layers == "head" else None
    found = alignments(protocol, sent, directions, images.x, images.y, head)
    counted = [
        name for name, _ in model.named_parameters() if head is None or name in (head.weight, head.bias)
    ]
    parameters = dict(model.named_parameters())
    for record in range(len(images)):
        logits = model(images.x[record : record + 1])
        loss = F.cross_entropy(logits, images.y[record : record + 1])
        gradients = torch.autograd.grad(loss, [parameters[name] for name in counted])
        error = (logits.softmax(1) - F.one_hot(images.y[record], CLASSES)).norm()
        for row, direction in zip(found, directions):
            pieces = [protocol.layout.named(direction)[name] for name in counted]
            product = sum((g * piece).sum() for g, piece in zip(gradients, pieces))
            length = torch.cat([piece.flatten() for piece in pieces]).norm()
            assert row[record] == pytest.approx((-product / length / error).item(), rel=1e-3, abs=1e-6)


def test_alignment_does_not_depend_on_the_length_of_the_update_nor_on_batch_norm_statistics():
    model, images = make_model().eval(), make_images(6)
    protocol, sent = protocol_of(model), read_vector(model)
    direction = torch.randn(1, len(sent), generator=torch.Generator().manual_seed(1))
    other = 7 * direction
    other[:, protocol.layout.trainable :] = 100
    first, second = (alignments(protocol, sent, d, images.x, images.y) for d in (direction, other))
    np.testing.assert_allclose(first, second, rtol=1e-3)


def test_alignment_goes_through_attention():
    model, images = vit((1, 8, 8), CLASSES).eval(), make_images(2)
    sent = read_vector(model)
    found = alignments(protocol_of(model), sent, torch.randn(1, len(sent)), images.x, images.y)
    assert np.isfinite(found).all()


def test_a_claim_is_the_z_score_among_the_other_clients_models():
    own = np.random.default_rng(0).normal(size=(4, 5))
    found = claims(own, None)
    others = own[[0, 1, 3], 3]
    expected = (own[2, 3] - others.mean()) / np.sqrt(others.var(ddof=1) + 1)
    assert found[2, 3] == pytest.approx(expected)


def test_standard_values_forget_what_all_records_of_a_class_share():
    images, auxiliary = make_images(40), make_images(30, seed=1)
    records = Records.of(Knowledge(images, auxiliary))
    values = np.random.default_rng(0).normal(size=70)
    shifted = values + 100 * records.y.numpy()
    np.testing.assert_allclose(records.standardised(values), records.standardised(shifted), atol=1e-9)


def test_an_auxiliary_record_is_compared_with_the_others_of_its_class():
    auxiliary = make_images(12, seed=1)
    records = Records.of(Knowledge(make_images(4), auxiliary))
    values = np.random.default_rng(0).normal(size=16)
    standard = records.standardised(values)
    same = [place for place in range(4, 16) if records.y[place] == records.y[4] and place != 4]
    assert np.sign(standard[4]) == np.sign(values[4] - values[same].mean())
    # Candidate and auxiliary record of one class share a spread, so the ratio shows their reference means.
    whole = values[[4, *same]].mean()
    ratio = (values[4] - values[same].mean()) / (values[0] - whole)
    assert standard[4] / standard[0] == pytest.approx(ratio)


def test_classes_without_auxiliary_records_are_still_scored():
    auxiliary = make_images(12, seed=1)
    records = Records.of(Knowledge(make_images(8), auxiliary[auxiliary.y < 2]))
    assert np.isfinite(records.standardised(np.arange(14.0))).all()


@pytest.mark.parametrize("attack", SERVER_ATTACKS, ids=["trajectory", "all", "head"])
def test_a_curious_server_finds_records_learned_by_heart_and_whose_they_are(leaky, attack):
    curious, _, knowledge, holder, _ = leaky
    evidence = attack.run(curious, knowledge, RNG)
    assert auc(evidence.scores, holder >= 0).low > 0.55
    assert evidence.by_client.shape == (4, len(holder))
    for client, scores in enumerate(evidence.by_client):
        chosen = (holder == client) | (holder < 0)
        assert auc(scores[chosen], holder[chosen] == client).low > 0.5


@pytest.mark.parametrize("attack", SERVER_ATTACKS[:2], ids=["trajectory", "all"])
def test_a_blind_server_finds_them_too_but_not_whose_they_are(leaky, attack):
    _, blind, knowledge, holder, _ = leaky
    evidence = attack.run(blind, knowledge, RNG)
    assert auc(evidence.scores, holder >= 0).low > 0.5
    assert evidence.by_client is None
    assert set(evidence.by_round) == {0, 1}


@pytest.mark.parametrize("calibrated", [True, False])
def test_the_source_of_records_learned_by_heart_is_named(leaky, calibrated):
    curious, _, knowledge, holder, _ = leaky
    sources = SourceInference(calibrated=calibrated).run(curious, knowledge, RNG)
    members = holder >= 0
    assert (sources.clients[members] == holder[members]).mean() > 0.6


@pytest.mark.parametrize("attack", SERVER_ATTACKS, ids=["trajectory", "all", "head"])
def test_strangers_are_given_away_no_more_than_chance(leaky, attack):
    curious, blind, knowledge, _, split = leaky
    strangers = split.pool[np.concatenate([split.nonmembers, split.test])]
    member = np.arange(len(strangers)) < len(split.nonmembers)
    for access in (curious, blind):
        evidence = attack.run(access, dataclasses.replace(knowledge, candidates=strangers), RNG)
        area = auc(evidence.scores, member)
        assert area.low <= 0.5 <= area.high
        assert 0.35 < evidence.decisions.mean() < 0.65


@pytest.mark.parametrize("attack", SERVER_ATTACKS, ids=["trajectory", "all", "head"])
def test_a_rounds_scores_are_those_of_a_server_who_saw_no_later_one(leaky, attack):
    curious, _, knowledge, _, _ = leaky
    early = dataclasses.replace(curious, rounds=curious.rounds[:1])
    whole, part = attack.run(curious, knowledge, RNG), attack.run(early, knowledge, RNG)
    np.testing.assert_allclose(whole.by_round[0], part.scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole.by_round[1], whole.scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "attack", [*SERVER_ATTACKS, SourceInference()], ids=["trajectory", "all", "head", "source"]
)
def test_only_what_was_sent_and_received_counts(leaky, attack):
    """The weights that happen to lie in the protocol's network are nobody's, and stay as they are."""
    curious, _, knowledge, _, _ = leaky
    blank = make_plain_model(seed=5)
    before = read_vector(blank)
    protocol = dataclasses.replace(curious.protocol, architecture=blank)
    first = attack.run(curious, knowledge, RNG)
    second = attack.run(dataclasses.replace(curious, protocol=protocol), knowledge, RNG)
    for field in dataclasses.fields(first):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
    assert torch.equal(read_vector(blank), before)
    assert not any(module._forward_hooks for module in blank.modules())


def test_clients_never_seen_are_never_named_and_have_the_scores_of_no_client(leaky):
    curious, _, knowledge, _, _ = leaky
    rounds = tuple(dataclasses.replace(seen, updates=seen.updates[1:]) for seen in curious.rounds)
    partial = dataclasses.replace(curious, rounds=rounds)
    assert set(SourceInference().run(partial, knowledge, RNG).clients) <= {1, 2, 3}
    evidence = LossTrajectory().run(partial, knowledge, RNG)
    np.testing.assert_array_equal(evidence.by_client[0], evidence.scores)
    assert (evidence.by_client[1] != evidence.scores).any()


@pytest.mark.parametrize("participants", [1, 2])
def test_with_too_few_others_the_model_sent_is_the_reference(leaky, participants):
    curious, _, knowledge, holder, _ = leaky
    rounds = tuple(dataclasses.replace(seen, updates=seen.updates[:participants]) for seen in curious.rounds)
    evidence = LossTrajectory().run(dataclasses.replace(curious, rounds=rounds[:1]), knowledge, RNG)
    chosen = (holder == 0) | (holder < 0)
    assert auc(evidence.by_client[0][chosen], holder[chosen] == 0).low > 0.55


def test_a_planted_step_along_one_records_gradient_names_record_and_client():
    model, images = make_plain_model(), make_images(40)
    sent = read_vector(model)
    updates = []
    for client in range(4):
        loss = F.cross_entropy(model(images.x[client : client + 1]), images.y[client : client + 1])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        updates.append(Update(client, 1, -0.5 * torch.cat([g.flatten() for g in gradients])))
    access = UpdateAccess(protocol_of(model), (SeenUpdates(0, sent, tuple(updates)),))
    knowledge = Knowledge(images, make_images(80, seed=3))
    for attack in (LossTrajectory(), GradientAlignment()):
        by_client = attack.run(access, knowledge, RNG).by_client
        assert by_client.argmax(0)[:4].tolist() == [0, 1, 2, 3]
    assert SourceInference().run(access, knowledge, RNG).clients[:4].tolist() == [0, 1, 2, 3]


def test_the_head_is_found_whatever_the_optimiser_and_missed_where_there_is_none(leaky):
    _, blind, knowledge, _, _ = leaky
    adam = protocol_of(make_plain_model(), Recipe(optimiser="adam", lr=0.01))
    assert last_linear(adam).weight == "3.weight"
    bare = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES, bias=False))
    with pytest.raises(CannotRun, match="linear layer with a bias"):
        GradientAlignment(layers="head").run(AggregateAccess(protocol_of(bare), blind.rounds), knowledge, RNG)


@pytest.mark.parametrize(
    "attack", [*SERVER_ATTACKS, SourceInference()], ids=["trajectory", "all", "head", "source"]
)
def test_a_server_that_saw_nothing_says_so(leaky, attack):
    curious, _, knowledge, _, _ = leaky
    unseen = tuple(dataclasses.replace(seen, updates=()) for seen in curious.rounds)
    for rounds in ((), unseen):
        with pytest.raises(CannotRun, match="observed no round"):
            attack.run(dataclasses.replace(curious, rounds=rounds), knowledge, RNG)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(BadInput, match=r"loss-trajectory quantile = 0 "):
        LossTrajectory(quantile=0)
    with pytest.raises(BadInput, match=r"loss-trajectory memory = 2 "):
        LossTrajectory(memory=2)
    with pytest.raises(BadInput, match="layers = 'some' is out of range; it must be one of all, head"):
        GradientAlignment(layers="some")
    with pytest.raises(BadInput, match=r"gradient-alignment quantile = 1 "):
        GradientAlignment(quantile=1)


def test_a_stricter_quantile_accuses_fewer(leaky):
    curious, _, knowledge, _, _ = leaky
    loose, strict = (LossTrajectory(quantile=q).run(curious, knowledge, RNG).decisions for q in (0.5, 0.05))
    assert 0 < strict.sum() < loose.sum()
    assert not (strict & ~loose).any()
