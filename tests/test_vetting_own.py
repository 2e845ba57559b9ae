"""What the client's own images and earlier models add to the vetting."""

import math
from copy import deepcopy

import pytest
import torch
from conftest import make_images
from honest_models import (
    Received,
    by_class,
    federated,
    fresh,
    half_dead,
    in_rounds,
    private,
    quantised,
    shared_out,
    trained,
    with_adam,
)
from torch import nn
from unseen_models import (
    brightness_gate,
    faint_fishing,
    imprint,
    part_way,
    pixel_bins,
    rare_by_bias,
    trap_weights,
)

from glasshouse import BadInput, vet
from glasshouse.data.images import Images
from glasshouse.learning.per_sample import SampleGradients
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build
from glasshouse.vetting import singling
from glasshouse.vetting.history import moved, turned_rows
from glasshouse.vetting.singling import largest_to_rest, layer_shares
from glasshouse.vetting.traps import alike_sums

IMAGES = make_images(200)
SERVERS = make_images(200, seed=7)


def names(received, **more):
    """The names of the alarming signs, with the client's images."""
    own = received.own
    signs = vet(received.model, own.shape, images=own.x, labels=own.y, **more).signs
    return {sign.name for sign in signs if sign.alarming}


@pytest.fixture(scope="module")
def honest():
    """What a client holds after three honest rounds."""
    return next(in_rounds("mlp", IMAGES, 0, rounds=(3,)))


def instead(honest, model):
    return Received(model, honest.own, honest.predecessors)


def test_the_largest_over_the_rest_has_its_limits():
    assert largest_to_rest(torch.ones(11)) == pytest.approx(0.1)
    assert largest_to_rest(torch.tensor([2.0, 0, 0])) == math.inf
    assert largest_to_rest(torch.zeros(3)) == 0


@pytest.mark.parametrize("name", ["mlp", "lenet", "stdcnn"])
def test_shares_agree_with_gradients_taken_one_by_one(name):
    images = IMAGES[:40]
    model = fresh(name, images, 0).eval()
    for norm in (part for part in model.modules() if isinstance(part, nn.BatchNorm2d)):
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        model(images.x)
    model.eval()
    lengths = {
        key.removesuffix(".weight"): gradients.flatten(1).norm(dim=1)
        for key, gradients in SampleGradients(model)(images.x, images.y)
    }
    with torch.no_grad():
        errors = (model(images.x).softmax(1) - nn.functional.one_hot(images.y, 4)).norm(dim=1)
    shares = layer_shares(fresh(name, images, 0), images)
    assert len(shares) == sum(isinstance(part, (nn.Linear, nn.Conv2d)) for part in model.modules())
    for share in shares:
        gains = lengths[share.name] / errors
        assert share.dsnr == pytest.approx(largest_to_rest(lengths[share.name]), rel=1e-3)
        assert share.gained == pytest.approx(largest_to_rest(gains), rel=1e-3)
        assert share.effective == pytest.approx(float(gains.sum() ** 2 / gains.square().sum()) / 40, rel=1e-3)


def test_one_misfit_dominates_an_honest_gradient_and_is_no_alarm():
    learned = trained(fresh("mlp", IMAGES, 0), IMAGES, Recipe(epochs=6, batch_size=16, lr=0.3), 0)
    labels = IMAGES.y[:64].clone()
    labels[10] = (labels[10] + 1) % 4
    received = Received(learned, Images(IMAGES.x[:64], labels, 4))
    own = received.own
    signs = vet(received.model, own.shape, images=own.x, labels=own.y).signs
    assert [sign.name for sign in signs] == ["dominant-image"]
    assert not signs[0].alarming


def test_a_gate_that_one_image_passes_is_found_by_the_gradient_per_error(honest):
    gated = brightness_gate(honest.model, SERVERS, 0)
    assert "single-image" in names(instead(honest, gated))
    worst, before = (
        max(share.gained for share in layer_shares(model, honest.own)) for model in (gated, honest.model)
    )
    assert worst > 5 * before


def test_a_single_image_counts_whatever_statistics_batch_norm_was_sent_with():
    model = build("stdcnn", IMAGES.shape, IMAGES.classes)
    skewed = deepcopy(model)
    for part in skewed.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_var.fill_(1e-9)
    pairs = zip(layer_shares(model, IMAGES), layer_shares(skewed, IMAGES))
    assert all(one.gained == pytest.approx(other.gained) for one, other in pairs)


def test_neurons_that_fire_rarely_are_found_on_own_images_alone(honest):
    rare = rare_by_bias(honest.model, SERVERS, 0)
    assert "rare-neurons" in names(instead(honest, rare))
    assert "rare-neurons" in names(instead(honest, pixel_bins(honest.model, SERVERS, 0)))
    assert not vet(rare, honest.own.shape).crafted


@pytest.mark.parametrize("options", [{}, {"scale": 0.9}, {"noise": 0.1}])
def test_rows_of_trap_weights_show_in_the_weights_alone(honest, options):
    trapped = trap_weights(honest.model, SERVERS, 0, **options)
    assert "balanced-rows" in {sign.name for sign in vet(trapped, honest.own.shape).signs}


def test_sums_of_rows_spread_by_their_length_unless_entries_are_paired():
    torch.manual_seed(0)
    rows = torch.randn(1000, 200)
    assert 40 < alike_sums(rows) < 130  # 8% by chance
    negative = -torch.rand(1000, 100)
    assert alike_sums(torch.cat([negative, -0.95 * negative], 1)) == 1000
    assert alike_sums(rows[:0]) == 0


def test_a_few_rows_that_were_replaced_are_found_among_those_that_were_trained(honest):
    before = honest.predecessors[-1]
    crafted = imprint(honest.model, SERVERS, 0, share=0.1, outgoing=0.01)
    assert turned_rows(before[1].weight, crafted[1].weight) >= 18  # a tenth of 200, and two may point alike
    assert turned_rows(before[1].weight, honest.model[1].weight) == 0
    found = names(instead(honest, crafted), predecessors=honest.predecessors)
    assert "replaced-rows" in found


def test_a_change_in_one_layer_that_training_does_not_make_is_out_of_line(honest):
    fished = faint_fishing(honest.model, SERVERS, 0, bias=3.0, rest=0.05)
    assert names(instead(honest, fished), predecessors=honest.predecessors) & {"out-of-line"}
    worst = max(moved(fished, honest.predecessors, honest.own), key=lambda change: change.beyond)
    assert worst.name == "5.bias"
    # One earlier model is enough, and so are models without own images.
    last = honest.predecessors[-1:]
    assert vet(fished, honest.own.shape, predecessors=last).crafted


def test_the_learning_rate_of_a_round_is_no_sign():
    parts = shared_out(IMAGES, 0)
    model = fresh("mlp", IMAGES, 0)
    slow, fast = (
        federated(model, parts, 1, Recipe(epochs=1, batch_size=16, lr=rate), 0)[1] for rate in (1e-3, 0.2)
    )
    for sent in (slow, fast):
        assert names(Received(sent, parts[0]), predecessors=[model]) == set()


@pytest.mark.parametrize("kind", [by_class, with_adam, private, quantised, half_dead])
def test_honest_kinds_that_thresholds_were_not_chosen_on_are_clean(kind):
    for received in kind("lenet", IMAGES, 1):
        assert names(received, predecessors=received.predecessors) == set()


def test_a_craft_that_comes_round_by_round_escapes_the_history_and_shows_in_the_weights(honest):
    crafted = trap_weights(honest.model, SERVERS, 0)
    *before, now = (part_way(honest.model, crafted, share) for share in (0.7, 0.8, 0.9, 1.0))
    assert names(instead(honest, now), predecessors=before) == {"balanced-rows"}


def test_where_thresholds_are_near_an_architecture_is_measured_against_itself(honest, monkeypatch):
    monkeypatch.setattr(singling, "GAINED", 0.01)
    monkeypatch.setattr(singling, "EFFECTIVE", 0.999)
    assert names(honest) == set()
    assert names(instead(honest, brightness_gate(honest.model, SERVERS, 0))) >= {"single-image"}


def test_labels_are_random_where_none_are_given_and_checked_where_they_are(honest):
    own, model = honest.own, honest.model
    assert not vet(model, own.shape, images=own.x).crafted
    with pytest.raises(BadInput, match="one for each of the images"):
        vet(model, own.shape, images=own.x, labels=own.y[1:])
    with pytest.raises(BadInput, match="one for each of the images"):
        vet(model, own.shape, labels=own.y)
    with pytest.raises(BadInput, match="labels from 0 to 9; the model has 4 classes"):
        vet(model, own.shape, images=own.x, labels=own.y.clone().fill_(9).index_fill(0, torch.tensor([0]), 0))


def test_too_few_own_images_are_said_to_be_too_few(honest):
    own = honest.own
    signs = vet(honest.model, own.shape, images=own.x[:31], labels=own.y[:31]).signs
    assert [(sign.name, sign.alarming) for sign in signs] == [("few-own-images", False)]


def test_a_predecessor_that_is_not_finite_is_an_alarm(honest):
    broken = deepcopy(honest.predecessors[-1])
    with torch.no_grad():
        broken[1].weight[0, 0] = torch.inf
    assert "not-finite" in names(honest, predecessors=[broken])
