"""Exact inversion of a leading linear layer: one image always, of a batch those alone on their neurons."""

import pytest
import torch
from conftest import make_images
from sent_updates import gradients_of, seen_sum, seen_updates
from torch import nn

from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.exact import LinearLeak
from glasshouse.attacks.inversion.linear import find_leading_linear, lone_images, single_image
from glasshouse.data.sources import load
from glasshouse.errors import CannotRun
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import match, paired_psnr
from glasshouse.models import build

RNG = torch.Generator().manual_seed(0)
SHAPE = (1, 8, 8)


def mlp(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build("mlp", SHAPE, 4)


def test_one_image_is_the_quotient_of_the_gradients():
    network, image = mlp().double(), torch.rand(1, *SHAPE, dtype=torch.float64)
    _, gradients = gradients_of(network, image, torch.tensor([1]))
    weight, bias = list(gradients.values())[:2]
    torch.testing.assert_close(single_image(weight, bias), image.flatten())


@pytest.mark.parametrize(("scale", "proven"), [(1.0, True), (1e-30, False)])
def test_an_image_within_the_rounding_is_not_proven(scale, proven):
    access = seen_updates(mlp(), [make_images(1)])
    access.rounds[0].updates[0].delta.mul_(scale)
    (part,) = LinearLeak().run(access, Knowledge(), RNG).parts
    assert part.proven == proven


def test_only_images_that_two_neurons_agree_on_are_returned():
    x = torch.rand(3, 20, dtype=torch.float64, generator=RNG)
    k = torch.zeros(3, 7, dtype=torch.float64)
    k[0, :3] = torch.tensor([1.0, -2.0, 0.5])  # three neurons of the first image alone
    k[1, 3:5] = torch.tensor([0.3, 0.1])  # two of the second
    k[2, 5] = 1.0  # one of the third: nothing confirms it
    k[:, 6] = torch.tensor([0.2, 0.5, 0.3])  # a mixture
    torch.testing.assert_close(lone_images(k.T @ x, k.sum(0), most=3), x[:2])
    torch.testing.assert_close(lone_images(k.T @ x, k.sum(0), most=1), x[:1])


def test_a_mixture_of_images_found_is_no_image():
    x = torch.rand(2, 20, dtype=torch.float64, generator=RNG)
    k = torch.tensor([[1.0, 2.0, 0.0, 0.0, 1.0, 3.0, 5.0], [0.0, 0.0, 1.0, 3.0, 1.0, 3.0, 5.0]]).double()
    found = lone_images(k.T @ x, k.sum(0), most=2)  # three neurons agree on the mean of the two
    torch.testing.assert_close(found[found.sum(1).argsort()], x[x.sum(1).argsort()])


def test_neurons_below_the_noise_are_not_looked_at():
    x = torch.rand(1, 20, dtype=torch.float64, generator=RNG)
    k = torch.tensor([[1.0, 1.0, 1e-6, 1e-6]], dtype=torch.float64)
    noisy = k.T @ x + 1e-6 * torch.randn(4, 20, dtype=torch.float64, generator=RNG)
    (image,) = lone_images(noisy, k[0], most=4, noise=1e-6)
    torch.testing.assert_close(image, x[0], rtol=0, atol=1e-5)


def test_no_neuron_no_image():
    with pytest.raises(CannotRun, match="no neuron"):
        single_image(torch.zeros(3, 4), torch.zeros(3))
    assert len(lone_images(torch.zeros(3, 4), torch.zeros(3), most=2)) == 0


@pytest.mark.parametrize("recipe", [Recipe(batch_size=0), Recipe(epochs=5, momentum=0.9, weight_decay=0.01)])
def test_one_image_comes_back_whatever_the_number_of_local_steps(recipe):
    images = make_images(3)
    access = seen_updates(mlp(), [images[[place]] for place in range(3)], recipe)
    assert paired_psnr(images.x, LinearLeak().run(access, Knowledge(), RNG).x).min() > 60


def test_of_a_batch_only_true_images_come_back_from_one_client_and_from_a_sum():
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 4))
    with torch.no_grad():
        wide[1].bias.sub_(0.35)  # few neurons fire, so that many belong to one image
    images = make_images(6)
    access = seen_updates(wide, [images[[0, 1, 2]], images[[3, 4, 5]]])
    for seen, parts in ((access, 2), (seen_sum(access), 1)):
        found = LinearLeak().run(seen, Knowledge(), RNG)
        assert len(found.parts) == parts
        assert 3 <= len(found.x) <= 6
        matched = match(images.x, found.x)
        assert matched.psnr[matched.returned].min() > 40


def test_two_classes_are_said_to_mix():
    torch.manual_seed(0)
    access = seen_updates(build("mlp", SHAPE, 2), [make_images(2)])
    assert "mixtures" in LinearLeak().run(access, Knowledge(), RNG).note


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 4)), "begins with Conv2d"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 4, bias=False)), "'1' has no bias"),
        (nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 4)), "other than the flattened image"),
    ],
)
def test_networks_without_a_leading_linear_layer_are_refused_with_the_reason(network, reason):
    with pytest.raises(CannotRun, match=reason):
        find_leading_linear(network, SHAPE)


@pytest.mark.real_data
def test_cifar_images_come_back_one_by_one_and_what_comes_back_of_a_batch_is_true():
    images = load("cifar10").test[list(range(16))]
    torch.manual_seed(0)
    network = build("mlp", (3, 32, 32), 10)
    alone = seen_updates(network, [images[[place]] for place in range(16)])
    assert paired_psnr(images.x, LinearLeak(updates=16).run(alone, Knowledge(), RNG).x).min() > 60
    found = LinearLeak().run(seen_updates(network, [images[list(range(4))]]), Knowledge(), RNG).x
    matched = match(images.x[:4], found)
    assert matched.psnr[matched.returned].min(initial=100) > 30


def test_a_gradient_that_something_was_added_to_is_that_of_no_single_image():
    generator = torch.Generator().manual_seed(0)
    k, x = torch.randn(8, generator=generator), torch.rand(5, generator=generator)
    W = torch.outer(k, x)
    assert torch.allclose(single_image(W, k), x, atol=1e-6)
    with pytest.raises(CannotRun, match="no single image explains"):
        single_image(W + 0.1 * torch.randn(8, 5, generator=generator), k)


def test_neurons_whose_weights_were_pruned_agree_on_no_image():
    assert len(lone_images(torch.zeros(4, 9), torch.ones(4), most=3)) == 0
