from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from conftest import SHAPE, make_images, make_split
from torch import nn

from glasshouse.federation.federation import Federation
from glasshouse.learning import cpu
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe


def make_wide_model(dropout: float = 0.0) -> nn.Module:
    """A network that `laid_out` can speed up in every way it knows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(128, 800),
        nn.ReLU(),
        nn.Linear(800, 4),
    )


def gradient(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    slopes = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    return torch.cat([slope.flatten() for slope in slopes])


def test_a_laid_out_network_is_the_same_function_of_the_same_parameters():
    model, images = make_wide_model(), make_images(12)
    faster = laid_out(deepcopy(model))
    assert Layout.of(faster) == Layout.of(model)
    assert torch.equal(read_vector(faster), read_vector(model))
    torch.testing.assert_close(faster(images.x), model(images.x))
    torch.testing.assert_close(gradient(faster, images.x, images.y), gradient(model, images.x, images.y))


def test_every_layer_of_the_test_network_is_sped_up():
    faster = laid_out(make_wide_model(0.5))
    kinds = [type(layer) for layer in faster]
    assert kinds.index(nn.MaxPool2d) < kinds.index(nn.ReLU)
    assert cpu._Dropout in kinds
    assert cpu._Linear in kinds


def test_pooling_before_rectifying_gives_the_same_bytes():
    torch.manual_seed(0)
    slow = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)).requires_grad_()
    fast = deepcopy(slow)
    cpu._pool_first(fast)
    x = torch.rand(5, *SHAPE)
    assert torch.equal(slow(x), fast(x))
    slopes = [torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters())) for model in (slow, fast)]
    assert all(torch.equal(one, other) for one, other in zip(*slopes))


def test_pooling_that_returns_indices_stays_where_it_is():
    model = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True))
    pooled, indices = laid_out(model)(torch.rand(2, *SHAPE, requires_grad=True))
    assert pooled.shape == indices.shape == (2, 1, 4, 4)


@pytest.mark.parametrize("bias", [True, False])
def test_products_have_the_slopes_and_curvature_of_a_linear_layer(bias):
    torch.manual_seed(0)
    layer = nn.Linear(400, 300, bias=bias)
    faster = laid_out(deepcopy(layer))
    assert type(faster) is cpu._Linear
    x = torch.randn(6, 400)
    results = []
    for model in (layer, faster):
        inputs = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(inputs).pow(3).mean(), inputs, create_graph=True)
        curvature = torch.autograd.grad(slope.pow(2).sum(), [inputs, model.weight])
        results.append((model(inputs), slope, *curvature))
    torch.testing.assert_close(*results)


def test_gradients_of_single_images_can_be_mapped_over_a_laid_out_network():
    model, images = make_wide_model(), make_images(5)
    faster = laid_out(deepcopy(model))

    def loss(parameters, x, y):
        logits = torch.func.functional_call(faster, parameters, x[None])
        return F.cross_entropy(logits, y[None])

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")
    mapped = each(dict(faster.named_parameters()), images.x, images.y)
    for k in range(len(images)):
        row = torch.cat([slopes[k].flatten() for slopes in mapped.values()])
        torch.testing.assert_close(row, gradient(model, images.x[k : k + 1], images.y[k : k + 1]))


def test_autocast_and_images_in_rows_reach_a_linear_layer_as_ever():
    layer = laid_out(nn.Linear(400, 300))
    assert layer(torch.rand(2, 3, 400)).shape == (2, 3, 300)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.rand(2, 400)).dtype == torch.bfloat16


def test_dropout_keeps_the_stated_share_and_the_mean():
    dropout = laid_out(nn.Sequential(nn.Dropout(0.3)))
    torch.manual_seed(0)
    dropped = dropout(torch.ones(200_000))
    kept = dropped > 0
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.005)
    torch.testing.assert_close(dropped[kept], torch.full((int(kept.sum()),), 1 / 0.7))
    assert torch.equal(dropout.eval()(torch.ones(9)), torch.ones(9))


def test_a_network_sped_up_in_every_way_gives_the_same_bytes_with_two_workers():
    split, model = make_split(), make_wide_model(0.2)
    reached = []
    for workers in (1, 2):
        with Engine(workers) as engine:
            federation = Federation(model, split, Recipe(epochs=2, batch_size=8), engine=engine)
            reached.append(
                federation.exchange(read_vector(model), [0, 1, 2], 0, keep_updates=False).delivery.mean
            )
    assert torch.equal(*reached)
