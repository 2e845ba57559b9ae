"""Crafted models are told from honest ones, whatever they are disguised as."""

import time
from copy import deepcopy

import pytest
import torch
from conftest import make_images, make_model, make_plain_model, make_split
from received_models import (
    SHAPE,
    class_fishing,
    disguised,
    eluding,
    feature_fishing,
    loki,
    natural_images,
    network,
    pruned,
    robbing,
    saturated_head,
    scale_mia,
)
from torch import nn

from glasshouse import BadInput, vet
from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.defences.vet import Vet
from glasshouse.federation.federation import Federation, Plan
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models import MODELS
from glasshouse.vetting.vet import digest

LIGHT = ["mlp", "lenet", "m1", "stdcnn", "c1", "cnn"]


def names(model, shape=SHAPE, **more):
    """The names of the alarming signs."""
    return {sign.name for sign in vet(model, shape, **more).signs if sign.alarming}


IMAGES = natural_images(200, SHAPE)


@pytest.mark.parametrize("name", list(MODELS))
def test_a_fresh_network_of_the_zoo_is_clean(name):
    assert vet(network(name), SHAPE, 10).signs == ()


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.parametrize("classes", [2, 10])
def test_a_trained_network_is_clean_also_when_pruned(name, classes):
    model = network(name, classes=classes, shape=(1, 8, 8))
    images = make_images(120)
    images = Images(images.x, images.y % classes, classes)
    write_vector(model, fit(model, read_vector(model), images, Recipe(epochs=6, batch_size=16, lr=0.05), 0))
    assert names(model, (1, 8, 8)) == set()
    for fraction in (0.7, 0.9, 0.99):
        assert names(pruned(model, fraction), (1, 8, 8)) == set()


@pytest.mark.parametrize(
    ("name", "directions", "scale"),
    [
        ("cnn", 1, 1.0),
        ("cnn", 3, 1.0),
        ("cnn", 8, 1e-6),
        ("alexnet", 1, 1e-6),
        ("resnet", 3, 1.0),
        ("vit", 1, 1.0),
    ],
)
def test_scale_mia_is_found_at_any_scale_and_number_of_directions(name, directions, scale):
    model = scale_mia(network(name), IMAGES, directions=directions, scale=scale)
    assert "staircase" in names(model)


@pytest.mark.parametrize(("noise", "honest"), [(0.0, 0.0), (0.01, 0.5), (0.2, 0.5)])
def test_permuted_scaled_and_noisy_rows_among_honest_ones_are_found(noise, honest):
    model = disguised(scale_mia(network("cnn"), IMAGES), "head.0", "head.2", noise=noise, honest=honest)
    assert "staircase" in names(model)


def test_rows_that_differ_only_where_images_never_are_leak_all_the_same():
    # No row is parallel to another: each has large weights of its own at a latent that is always zero.
    model = network("mlp")
    hidden, after = model[1], model[3]
    flat = IMAGES.flatten(1)
    with torch.no_grad():
        hidden.weight[:] = 1 / flat.shape[1]
        hidden.bias[:] = -torch.quantile(flat.mean(1), torch.linspace(0.01, 0.99, len(hidden.weight)))
        fine = torch.ones(16, 16)
        fine[::2] *= -1
        fine[:, ::2] *= -1
        hidden.weight += 0.02 * fine.flatten() * torch.randn(len(hidden.weight), 1)
        after.weight[:] = torch.rand(len(after.weight), 1) / 200
    assert "linear-leakage" in names(model)


def test_rows_that_differ_in_pixels_which_are_always_black_are_found_by_the_clients_images_alone():
    framed = IMAGES.clone()
    framed[:, :, :, [0, -1]] = 0
    model = disguised(robbing(network("mlp"), framed), "bins", "back", noise=0.0, honest=0.5)
    with torch.no_grad():
        rows = model.bins.weight.view(-1, *SHAPE)
        rows[..., [0, -1]] = 0.1 * torch.randn(rows[..., [0, -1]].shape)
    assert names(model) == set()
    assert names(model, images=framed) == {"linear-leakage"}
    assert names(network("mlp"), images=framed) == set()


@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet20-4"])
def test_an_imprint_before_a_network_is_found(name):
    model = robbing(network(name), IMAGES)
    assert "staircase" in names(model)
    assert "staircase" in names(disguised(model, "bins", "back", honest=0.5))


def test_the_slot_of_a_client_is_found_and_named():
    vetting = vet(loki(network("lenet"), IMAGES), SHAPE)
    assert {"staircase", "identity-convolution"} <= {sign.name for sign in vetting.signs}
    assert vetting.crafted


@pytest.mark.parametrize("name", ["mlp", "lenet", "efficientnet-b0"])
def test_fishing_for_a_class_or_a_feature_is_found(name):
    assert {"exploding-biases", "silent-classes", "lone-row"} <= names(class_fishing(network(name)))
    assert "lone-row" in names(feature_fishing(network(name), IMAGES))


def test_fishing_is_found_without_large_biases():
    # The same answer, with the constant carried by a feature that is always large.
    model = class_fishing(network("mlp"), bias=0.0)
    head = model[5]
    with torch.no_grad():
        model[3].bias[0] += 100
        head.weight[1:, 0] = 10
        head.weight[0, 0] = 0
    assert names(model)


def test_fishing_among_two_classes_shows_in_the_biases():
    assert "exploding-biases" in names(class_fishing(network("lenet", classes=2)))


@pytest.mark.parametrize(
    ("name", "depth"),
    [("mlp", 10.0), ("lenet", 10.0), ("c1", 1000.0), ("alexnet", 1.0), ("resnet18", 1000.0)],
)
def test_a_layer_that_nothing_passes_is_found(name, depth):
    assert "dead-layer" in names(eluding(network(name), depth=depth))


def test_a_saturated_head_on_zeros_is_found():
    assert {"exploding-biases", "dead-layer"} <= names(saturated_head(network("lenet")))


def test_a_head_of_zeros_is_an_honest_start():
    model = network("lenet")
    nn.init.zeros_(model[9].weight)
    nn.init.zeros_(model[9].bias)
    assert names(model) == set()


def test_a_few_dead_neurons_are_honest():
    model = network("mlp")
    with torch.no_grad():
        model[1].bias[:150] = -50
    assert names(model) == set()


def test_rows_that_repeat_without_thresholds_of_their_own_do_not_alarm():
    blur = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
    nn.init.constant_(blur.weight, 1 / 9)
    model = nn.Sequential(nn.Conv2d(1, 16, 3), blur, nn.ReLU(), nn.Flatten(), nn.Linear(16 * 196, 10))
    vetting = vet(model, SHAPE)
    assert not vetting.crafted
    assert [sign.name for sign in vetting.signs] == ["constant-block"]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    model = make_model().train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    vet(model, (1, 8, 8))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(module.training == training for module in model.modules())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(random, torch.get_rng_state())


def test_activations_in_place_do_not_disturb_it():
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 50), nn.ReLU(inplace=True), nn.Linear(50, 10))
    assert names(model) == set()


def test_the_same_model_gets_the_same_verdict_and_digest():
    model = robbing(network("mlp"), IMAGES)
    before = vet(model, SHAPE)
    assert before == vet(deepcopy(model), SHAPE)
    with torch.no_grad():
        model.bins.bias[3] += 1e-3
    assert digest(model) != before.digest


def test_the_digest_leaves_out_step_counters():
    model = make_model()
    before = digest(model)
    model[1].num_batches_tracked += 7
    assert digest(model) == before
    model[1].running_mean += 1
    assert digest(model) != before


def test_peers_with_other_weights_raise_the_alarm():
    model = network("mlp")
    received = digest(model)
    assert not vet(model, SHAPE, peers=[received, received.upper()]).crafted
    assert names(model, peers=[received, digest(network("mlp", seed=1))]) == {"inconsistent"}


def test_a_model_that_does_not_follow_from_its_predecessor_raises_the_alarm():
    first = network("lenet", shape=(1, 8, 8), classes=4)
    second = deepcopy(first)
    write_vector(second, fit(second, read_vector(first), make_images(80), Recipe(epochs=3, lr=0.05), 0))
    third = deepcopy(second)
    write_vector(third, fit(third, read_vector(second), make_images(80, 1), Recipe(epochs=3, lr=0.05), 0))
    assert names(third, (1, 8, 8), predecessors=[first, second]) == set()
    replaced = network("lenet", seed=9, shape=(1, 8, 8), classes=4)
    assert "replaced" in names(replaced, (1, 8, 8), predecessors=[first])
    jumped = deepcopy(third)
    with torch.no_grad():
        jumped[7].weight *= 3
    assert "jump" in names(jumped, (1, 8, 8), predecessors=[first, second, third])


def test_weights_that_are_not_numbers_are_refused():
    model = network("mlp")
    with torch.no_grad():
        model[1].weight[0, 0] = torch.nan
    assert names(model) == {"not-finite"}


@pytest.mark.parametrize(
    ("arguments", "options", "word"),
    [
        (((1, 16),), {}, "write it like"),
        (((1, 17, 16),), {}, "shape that it was built for"),
        ((SHAPE, 7), {}, "10 logits, not 7"),
        ((SHAPE,), {"peers": ["12ab"]}, "64 digits"),
        ((SHAPE,), {"images": torch.rand(4, 1, 8, 8)}, "two or more of shape"),
        ((SHAPE,), {"predecessors": [nn.Linear(2, 2)]}, "same network"),
        ((SHAPE,), {"seed": 2**63}, "below 2\\^63"),
    ],
)
def test_bad_arguments_are_named(arguments, options, word):
    with pytest.raises(BadInput, match=word) as raised:
        vet(network("mlp"), *arguments, **options)
    assert "\n" not in str(raised.value)


def test_a_client_that_vets_refuses_only_crafted_models(engine):
    split = make_split()
    model = make_plain_model()
    defence = Vet()
    assert defence.on_receive(model, (1, 8, 8)) is None
    reason = defence.on_receive(eluding(model), (1, 8, 8))
    assert reason is not None
    assert "dead-layer" in reason
    assert defence == Vet()
    assert hash(defence) == hash(Vet())
    federation = Federation(model, split, Recipe(epochs=1), engine=engine, defences=Stack([defence]))
    history = federation.run(read_vector(model), Plan(rounds=1))
    assert len(history.rounds) == 1


@pytest.mark.slow
def test_vetting_takes_under_a_second_on_the_largest_networks():
    for name in ("resnet18", "efficientnet-b0", "vgg", "convnet"):
        model = network(name, shape=(3, 32, 32))
        vet(model, (3, 32, 32))
        began = time.process_time()
        vet(model, (3, 32, 32))
        assert (time.process_time() - began) / torch.get_num_threads() < 2  # half the speed is left to others
