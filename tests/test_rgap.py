"""R-GAP: layer by layer from a gradient to its image, and what rank analysis says beforehand."""

import numpy as np
import pytest
import torch
from conftest import make_images
from sent_updates import gradients_of, seen_updates
from torch import Tensor, nn
from torch.nn import functional

from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.activations import settle_signs, undo
from glasshouse.attacks.inversion.chain import find_chain
from glasshouse.attacks.inversion.convolution import Meetings
from glasshouse.attacks.inversion.exact import RGAP
from glasshouse.attacks.inversion.rgap import Recovered, head_inputs, rank_analysis, recover
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.errors import CannotRun
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import paired_psnr
from glasshouse.models import build

SHAPE = (2, 8, 8)
RNG = torch.Generator().manual_seed(0)


def small_cnn(activation: nn.Module, *, classes: int = 4, bias: bool = True, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 12, 4, stride=2, padding=2, bias=bias), activation,
        nn.Conv2d(12, 12, 3, padding=1, bias=bias), activation,
        nn.Flatten(), nn.Linear(300, 20, bias=bias), activation, nn.Linear(20, classes, bias=bias),
    )  # fmt: skip


def leaky_cnn() -> nn.Sequential:
    """For the images of `make_images`."""
    network = small_cnn(nn.LeakyReLU(0.2))
    network[0] = nn.Conv2d(1, 12, 4, stride=2, padding=2)
    return network


def recovered_from(network: nn.Module, image: Tensor, label: int) -> Recovered:
    weights, gradients = gradients_of(network, image[None], torch.tensor([label]))
    return recover(find_chain(network, tuple(image.shape)), weights, gradients)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [nn.LeakyReLU(0.2), nn.Sigmoid(), nn.Tanh()])
def test_an_image_comes_back_exactly_through_invertible_activations(activation, bias):
    network = small_cnn(activation, bias=bias).double()
    image = torch.rand(SHAPE, dtype=torch.float64)
    recovered = recovered_from(network, image, 3)
    assert recovered.label == 3
    assert all(layer.missing == 0 for layer in recovered.ranks)
    assert recovered.mismatch < 1e-6
    torch.testing.assert_close(recovered.image, image, rtol=0, atol=1e-5)


def test_single_precision_gradients_are_enough():
    network = small_cnn(nn.LeakyReLU(0.2))
    for seed in range(8):
        image = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed))
        recovered = recovered_from(network, image, seed % 4)
        assert recovered.label == seed % 4
        assert paired_psnr(image[None], recovered.image[None])[0] > 60


def test_a_head_without_bias_still_gives_its_label_and_input():
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(5, 3, bias=False)).double()
    x = torch.randn(1, 1, 5, dtype=torch.float64) * 3
    weights, gradients = gradients_of(network, x[None], torch.tensor([2]))
    (head,) = find_chain(network, (1, 1, 5))
    ((k, found),) = head_inputs(head, weights, gradients)
    expected = network(x[None])[0].softmax(0) - torch.tensor([0.0, 0.0, 1.0])
    torch.testing.assert_close(k, expected)
    torch.testing.assert_close(found, x.flatten())


def test_with_two_classes_and_no_bias_the_image_in_range_is_among_the_explanations():
    network = small_cnn(nn.LeakyReLU(0.2), classes=2, bias=False).double()
    image = torch.rand(SHAPE, dtype=torch.float64)
    recovered = recovered_from(network, image, 1)
    torch.testing.assert_close(recovered.image, image, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Conv2d(3, 4, (2, 3), stride=(2, 1), padding=(1, 2)),
        nn.Conv2d(3, 4, 3, dilation=2, padding="same"),
    ],
)
def test_the_equations_of_a_convolution_are_what_torch_computes(conv):
    torch.manual_seed(0)
    x = torch.randn(1, 3, 6, 7)
    z = functional.conv2d(x, conv.weight, None, conv.stride, conv.padding, conv.dilation)
    k = torch.randn_like(z)
    (gradient,) = torch.autograd.grad(z, conv.weight, k)
    meetings = Meetings.of(conv, (3, 6, 7))
    rows = meetings.weight_rows(conv.weight.detach())
    np.testing.assert_allclose(rows @ x.flatten().numpy(), z.detach().flatten().numpy(), atol=1e-5)
    for channel in range(3):
        correlation = meetings.gradient_rows(k[0]) @ x[0, channel].flatten().double().numpy()
        np.testing.assert_allclose(correlation, gradient[:, channel].flatten().numpy(), atol=1e-4)


@pytest.mark.parametrize("activation", [nn.LeakyReLU(0.3), nn.Sigmoid(), nn.Tanh(), nn.Identity(), nn.ReLU()])
def test_an_activation_is_undone_where_it_can_be(activation):
    z = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    x = activation(z)
    (slope,) = torch.autograd.grad(x.sum(), z)
    back, told, derivative = undo(activation, x.detach())
    torch.testing.assert_close(back[told], z.detach()[told])
    torch.testing.assert_close(derivative[told], slope[told])
    assert told.all() or isinstance(activation, nn.ReLU)


@pytest.mark.parametrize("place", [0, 1])
def test_wrong_signs_near_zero_are_settled_by_the_gradient_of_the_weights(place):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(384, 9), nn.LeakyReLU(0.2)
    ).double()
    link = find_chain(network, SHAPE)[place]
    x = torch.rand(1, *link.entering, dtype=torch.float64)
    z = link.module(x)
    arriving = torch.randn_like(z)
    (gradient,) = torch.autograd.grad(link.activation(z), link.module.weight, arriving)
    true = z[0] > 0
    out = torch.where(true, 1e-3, -1e-3).double()  # all but the first few are far from zero
    out.view(-1)[4:] *= 1e3
    wrong = true.clone()
    wrong.view(-1)[[1, 3]] ^= True
    noisy = x.flatten() + 1e-3 * torch.randn(x.numel(), dtype=torch.float64)
    assert torch.equal(settle_signs(link, gradient, noisy, out, arriving[0], wrong), true)


def test_rank_analysis_says_beforehand_that_a_narrow_layer_cannot_be_undone():
    torch.manual_seed(0)
    narrow = nn.Conv2d(2, 1, 3, stride=2, padding=1)  # 16 outputs, 18 weights, 128 pixels
    network = nn.Sequential(narrow, nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(16, 4)).double()
    links = find_chain(network, SHAPE)
    head, first = rank_analysis(links)
    assert head.missing == 0
    assert (first.unknowns, first.weight_rows, first.gradient_rows) == (128, 16, 17)
    assert first.missing == 128 - 16 - 17
    image = torch.rand(SHAPE, dtype=torch.float64)
    recovered = recovered_from(network, image, 1)
    assert recovered.ranks[-1].missing == first.missing
    assert not torch.allclose(recovered.image, image, atol=0.05)


def test_no_layer_of_cnn6_lacks_equations_on_cifar_images():
    links = find_chain(build("cnn6", (3, 32, 32), 10), (3, 32, 32))
    assert [layer.unknowns for layer in rank_analysis(links)] == [3200, 1600, 2916, 2916, 2916, 3468, 3072]
    assert all(layer.missing == 0 for layer in rank_analysis(links))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lenet", r"MaxPool2d at '1' cannot be undone"),
        ("convnet", r"BatchNorm2d at '1' cannot be undone"),
        ("vit", r"LayerNorm at 'encoder.embedding.0' cannot be undone"),
    ],
)
def test_networks_that_are_no_chain_are_refused_with_the_reason(name, reason):
    with pytest.raises(CannotRun, match=reason):
        find_chain(build(name, (3, 32, 32), 10), (3, 32, 32))


def test_a_shortcut_is_noticed():
    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x.flatten(1))
            return self.second(hidden + x.flatten(1))

    with pytest.raises(CannotRun, match="is not what left the layer before it"):
        find_chain(Shortcut(), (1, 2, 3))


def test_watching_a_network_leaves_its_modes_and_hooks_alone():
    network = small_cnn(nn.LeakyReLU(0.2)).train()
    network[1].eval()
    find_chain(network, SHAPE)
    assert network[0].training
    assert not network[1].training
    assert not any(module._forward_hooks for module in network.modules())


def test_the_images_and_labels_of_clients_with_one_image_each_come_back_from_their_updates():
    network, images = leaky_cnn(), make_images(4)
    access = seen_updates(network, [images[[place]] for place in range(4)])
    found = RGAP().run(access, Knowledge(), RNG)
    assert paired_psnr(images.x, found.x).min() > 40
    assert torch.cat([part.labels for part in found.parts]).tolist() == images.y.tolist()
    assert all(part.note is None for part in found.parts)


@pytest.mark.parametrize("scale", [1.0, 1e-38])
def test_an_image_that_enters_a_linear_layer_comes_back_as_an_image(scale):
    torch.manual_seed(0)
    hidden = nn.Linear(64, 40, bias=False)
    network, images = nn.Sequential(nn.Flatten(), hidden, nn.Sigmoid(), nn.Linear(40, 4)), make_images(1)
    access = seen_updates(network, [images])
    access.rounds[0].updates[0].delta.mul_(scale)
    found = RGAP().run(access, Knowledge(), RNG)
    assert found.x.shape == images.x.shape
    if scale == 1:
        assert paired_psnr(images.x, found.x)[0] > 40


def test_what_stays_open_is_said_in_the_note():
    torch.manual_seed(0)
    narrow = nn.Conv2d(1, 1, 3, stride=2, padding=1)  # 16 outputs, 9 weights, 64 pixels
    network = nn.Sequential(narrow, nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(16, 4))
    note = RGAP().run(seen_updates(network, [make_images(1)]), Knowledge(), RNG).note
    assert "40 of 64 directions of the input of layer '0' stay open" in note


def test_batches_several_steps_and_large_layers_are_refused():
    network, images = leaky_cnn(), make_images(2)
    with pytest.raises(CannotRun, match="holds 2 images"):
        RGAP().run(seen_updates(network, [images]), Knowledge(), RNG)
    several = seen_updates(network, [images[[0]]], Recipe(epochs=3, batch_size=0, lr=0.1))
    with pytest.raises(CannotRun, match="3 local steps"):
        RGAP().run(several, Knowledge(), RNG)
    large = Images(torch.rand(1, 3, 64, 64), torch.tensor([0]), 4)
    with pytest.raises(CannotRun, match="layer '2' has 13068 inputs, over the limit of 6000"):
        RGAP().run(seen_updates(build("cnn6", (3, 64, 64), 4), [large]), Knowledge(), RNG)


@pytest.mark.slow
@pytest.mark.real_data
def test_cifar_images_come_back_above_30_db_through_cnn6():
    images = load("cifar10").test[list(range(8))]
    torch.manual_seed(0)
    access = seen_updates(build("cnn6", (3, 32, 32), 10), [images[[place]] for place in range(8)])
    found = RGAP(updates=8).run(access, Knowledge(), RNG)
    assert torch.cat([part.labels for part in found.parts]).tolist() == images.y.tolist()
    assert paired_psnr(images.x, found.x).min() > 30
