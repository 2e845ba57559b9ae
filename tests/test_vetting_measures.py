"""What the vetting measures, each on its own."""

import torch
from conftest import make_plain_model
from torch import nn

from glasshouse.vetting.behaviour import isolated, lone_row, silent_labels
from glasshouse.vetting.probing import noise, probe
from glasshouse.vetting.signs import parallel_rows


def test_samples_are_isolated_by_rows_that_differ_by_one_of_them():
    active = torch.ones(16, 16).triu().bool()  # row l sums the samples 0 .. l
    weights = torch.rand(16, 1) + 0.5
    feature = -torch.arange(16.0)[:, None].expand(16, 16)
    assert isolated(active * weights, feature) == set(range(4, 12))
    scales = torch.linspace(0.1, 10, 16)
    assert isolated(active * weights * scales, feature * scales) == set(range(4, 12))
    torch.manual_seed(0)
    assert isolated(active * torch.randn(16, 16), feature) == set()  # no common proportions
    assert isolated(active * weights, feature + 9 * torch.randn(16, 16)) == set()  # not one quantity
    subsets = (torch.rand(64, 500) < 0.5) * torch.rand(64, 1)
    assert isolated(subsets, torch.rand(64, 1).expand(64, 500)) == set()  # not nested


def test_silent_labels_agree_with_gradients_by_autograd():
    torch.manual_seed(0)
    weight, features = torch.randn(5, 7), torch.randn(3, 7)
    weight[1:] *= 0
    bias = torch.tensor([0.0, 9, 9, 9, 9])
    probabilities = (features @ weight.T + bias).double().softmax(1)
    norms = torch.empty(3, 5)
    for label in range(5):
        x = features.clone().requires_grad_()
        loss = nn.functional.cross_entropy(x @ weight.T + bias, torch.full((3,), label), reduction="sum")
        norms[:, label] = torch.autograd.grad(loss, x)[0].norm(dim=1)
    expected = (norms < 1e-3 * norms.max()).sum(1)
    assert torch.equal(silent_labels(weight, probabilities), expected)


def test_a_lone_row_differs_from_all_others():
    weight = torch.zeros(6, 4)
    weight[2] = torch.tensor([0.1, -0.3, 2, 0])
    assert lone_row(weight) == lone_row(weight + 5) == 2
    assert lone_row(torch.randn(6, 4, generator=torch.Generator().manual_seed(0))) is None


def test_parallel_rows_are_found_up_to_sign_and_size():
    torch.manual_seed(0)
    rows = torch.randn(100, 40)
    rows[20:40] = rows[20] * torch.randn(20, 1)
    assert parallel_rows(rows).tolist() == list(range(20, 40))
    assert len(parallel_rows(torch.randn(500, 3))) == 0  # in three dimensions many are parallel by chance


def test_noise_has_all_shades_and_stays_in_the_box():
    images = noise(64, (3, 12, 10), torch.Generator().manual_seed(0))
    assert images.shape == (64, 3, 12, 10)
    assert 0 <= images.min() < images.max() <= 1
    means = images.mean((1, 2, 3))
    assert means.min() < 0.2
    assert means.max() > 0.6


def test_the_probe_sees_the_gradient_of_the_loss():
    model = make_plain_model()
    seen = probe(model, (1, 8, 8), seed=3)
    rng = torch.Generator().manual_seed(3)
    images = noise(64, (1, 8, 8), rng)
    labels = torch.randint(4, (64,), generator=rng)
    nn.functional.cross_entropy(model(images), labels, reduction="sum").backward()
    assert torch.allclose(seen.signals["1"].sum(0), model[1].bias.grad, atol=1e-5)
    assert torch.allclose(seen.signals["1"].T @ images.flatten(1), model[1].weight.grad, atol=1e-4)
