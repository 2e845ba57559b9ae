import pytest
import torch
import torch.nn.functional as F
from conftest import make_images
from scipy.optimize import linear_sum_assignment
from torch import nn

from glasshouse.access import AggregateAccess, Protocol, SeenSum, SeenUpdates, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.spear import Spear, invert_layer, leading_layer
from glasshouse.data.named import cifar10, digits
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.updates import Update
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models.dense import perceptron


def network_of(inputs, hidden=(120, 60), classes=10, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), *perceptron(inputs, hidden, classes))


def layer_gradient(network, x, y):
    """The gradients and parameters of the first linear layer, as a plain backward pass has them."""
    layer = next(module for module in network.modules() if isinstance(module, nn.Linear))
    loss = F.cross_entropy(network(x), y)
    weight, bias = torch.autograd.grad(loss, (layer.weight, layer.bias))
    return weight, bias, layer.weight.detach(), layer.bias.detach()


def inverted(network, x, y, seconds=60.0, seed=0, **options):
    rng = torch.Generator().manual_seed(seed)
    return invert_layer(*layer_gradient(network, x, y), seconds=seconds, rng=rng, **options)


def worst_decibels(originals, rebuilt):
    """The lowest PSNR of an original under the best one-to-one assignment."""
    errors = (originals.flatten(1).double()[:, None] - rebuilt.flatten(1).double()[None]).square().mean(2)
    rows, columns = linear_sum_assignment(errors.numpy())
    assert len(rows) == len(originals)
    return -10 * errors[rows, columns].max().clamp_min(1e-30).log10().item()


def digit_batch(count, seed=0):
    train = digits().train
    chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[:count]
    return train.x[chosen], train.y[chosen]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_batches_of_random_inputs_come_back_exactly_with_proof(count, dtype):
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(count), dtype=dtype)
    batch = inverted(network_of(64).to(dtype), x, torch.arange(count))
    assert batch.exact
    assert (batch.rank, batch.agreement, batch.reason) == (count, 1.0, None)
    assert worst_decibels(x, batch.x) > (200 if dtype == torch.float64 else 60)


@pytest.mark.parametrize("count", [2, 4, 6])
def test_digits_come_back_exactly_from_gradients_in_single_precision(count):
    x, y = digit_batch(count)
    batch = inverted(network_of(64), x, y)
    assert batch.exact
    assert worst_decibels(x, batch.x) > 60


def test_rows_drawn_at_random_lead_to_the_same_batch():
    x, y = digit_batch(4)
    network = network_of(64).double()
    blind, guided = (inverted(network, x.double(), y, guided=guided) for guided in (False, True))
    assert blind.exact
    assert worst_decibels(guided.x, blind.x) > 200


def test_equal_images_count_once_and_images_without_a_gradient_not_at_all():
    x, y = digit_batch(4)
    network = network_of(64).double()
    twice = inverted(network, torch.cat([x, x[:1]]).double(), torch.cat([y, y[:1]]))
    assert twice.exact
    assert twice.rank == 4
    assert worst_decibels(x, twice.x) > 60

    weights, biases, weight, bias = layer_gradient(network, x.double(), y)
    with_silent = invert_layer(weights * 0.8, biases * 0.8, weight, bias, seconds=60, rng=torch.Generator())
    assert with_silent.exact
    assert worst_decibels(x, with_silent.x) > 60


def test_the_same_seed_gives_the_same_batch():
    x, y = digit_batch(5)
    first, second = (inverted(network_of(64), x, y, seed=3) for _ in range(2))
    assert first.x.allclose(second.x, rtol=0, atol=1e-12)


def test_a_noised_gradient_is_never_proven_exact():
    x, y = digit_batch(4)
    for noise in (1e-3, 1e-1):
        weights, biases, weight, bias = layer_gradient(network_of(64).double(), x.double(), y)
        weights = weights + noise * weights.std() * torch.randn(weights.shape, generator=torch.Generator())
        try:
            batch = invert_layer(weights, biases, weight, bias, seconds=1, rng=torch.Generator())
        except CannotRun:
            continue
        assert not batch.exact or worst_decibels(x, batch.x) > 40


def test_a_gradient_of_another_model_is_not_proven():
    x, y = digit_batch(4)
    gradients = layer_gradient(network_of(64).double(), x.double(), y)[:2]
    other = layer_gradient(network_of(64, seed=1).double(), x.double(), y)[2:]
    batch = invert_layer(*gradients, *other, seconds=3, rng=torch.Generator())
    assert not batch.exact
    assert batch.reason


def test_more_samples_than_neurons_are_refused():
    x, y = digit_batch(40)
    with pytest.raises(CannotRun, match="full rank"):
        inverted(network_of(64, hidden=(20, 20)), x, y)
    with pytest.raises(CannotRun, match="no gradient"):
        invert_layer(torch.zeros(5, 4), torch.zeros(5), torch.ones(5, 4), torch.ones(5), seconds=1, rng=None)


def test_a_search_without_time_says_how_much_it_found():
    x, y = digit_batch(6)
    batch = inverted(network_of(64), x, y, seconds=0.0)
    assert not batch.exact
    assert batch.reason.startswith("of 6 samples 0 were found in")


def protocol_of(network, recipe, classes=4):
    return Protocol(network, Layout.of(network), recipe, (1, 8, 8), classes)


def curious_server(network, images, recipe):
    """What the server sees of one client that trains on `images`."""
    sent = read_vector(network)
    delta = fit(network, sent, images, recipe, seed=0) - sent
    seen = SeenUpdates(0, sent, (Update(0, len(images), delta),))
    return UpdateAccess(protocol_of(network, recipe), (seen,))


def ran(access, **options):
    return Spear(**options).run(access, Knowledge(), torch.Generator().manual_seed(0))


def test_the_attack_rebuilds_a_clients_batch_from_its_update_and_says_that_it_is_proven():
    images = make_images(6)
    network = network_of(64, classes=4)
    evidence = ran(curious_server(network, images, Recipe(batch_size=0, lr=1.0)))
    assert evidence.parts[0].clients == (0,)
    assert worst_decibels(images.x, evidence.x) > 60
    assert evidence.parts[0].proven
    assert "proven exact: 6 images" in evidence.note


def test_the_attack_rebuilds_the_images_of_several_clients_from_their_sum():
    images, network, recipe = make_images(6), network_of(64, classes=4), Recipe(batch_size=0, lr=1.0)
    whole = curious_server(network, images, recipe)
    seen = whole.rounds[0]
    blind = AggregateAccess(whole.protocol, (SeenSum(0, seen.sent, seen.updates[0].delta, (0, 1), (2, 4)),))
    assert worst_decibels(images.x, ran(blind).x) > 60


def test_the_layer_must_see_the_image_and_feed_a_relu():
    recipe = Recipe()
    assert leading_layer(protocol_of(network_of(64, classes=4), recipe)) == "1"
    flat = nn.Flatten()
    refused = {
        "no linear layer that sees": nn.Sequential(flat, nn.BatchNorm1d(64), nn.Linear(64, 9), nn.ReLU()),
        "no ReLU follows": nn.Sequential(flat, nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 4)),
        "has no bias": nn.Sequential(flat, nn.Linear(64, 9, bias=False), nn.ReLU(), nn.Linear(9, 4)),
    }
    for reason, network in refused.items():
        torch.nn.init.normal_(next(p for p in network.parameters() if p.ndim == 2))
        if reason == "no linear layer that sees":
            network[1].running_mean.fill_(0.5)
        with pytest.raises(CannotRun, match=reason):
            leading_layer(protocol_of(network, recipe))


def test_options_are_checked_at_the_door():
    assert ATTACKS.make("spear(seconds=5)") == Spear(seconds=5)
    with pytest.raises(BadInput, match="seconds"):
        Spear(seconds=0)


@pytest.mark.real_data
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_eight_cifar_images_come_back_exactly_within_thirty_seconds(dtype):
    test = cifar10().test
    for seed in range(3):
        chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))[:8]
        x, y = test.x[chosen].to(dtype), test.y[chosen]
        batch = inverted(network_of(3072, hidden=(300, 300), seed=seed).to(dtype), x, y, seconds=30)
        assert batch.exact
        assert batch.seconds < 30
        assert worst_decibels(x, batch.x) > 60
