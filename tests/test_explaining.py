"""Whether images explain an update, and tensors that say nothing about it."""

from copy import deepcopy

import pytest
import torch
from sent_updates import ONE_STEP, seen_updates
from torch import Tensor, nn

from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.distances import FEW, worst_tensor
from glasshouse.attacks.inversion.explaining import Explanation
from glasshouse.attacks.inversion.strongest import StrongestInversion
from glasshouse.attacks.inversion.updates import attacked_updates
from glasshouse.data.images import Images
from glasshouse.learning.recipe import Recipe

SHAPE, CLASSES = (1, 8, 8), 4


class Attentive(nn.Module):
    """One attention; the bias of its keys shifts all scores of a query alike, and so does nothing."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Conv2d(1, width, 2, stride=2)
        self.position = nn.Parameter(torch.randn(1, 16, width))
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embedding(x).flatten(2).transpose(1, 2) + self.position
        q, k, v = (layer(self.norm(tokens)) for layer in (self.q, self.k, self.v))
        return self.head((tokens + (q @ k.mT / 8).softmax(-1) @ v).mean(1))


def normed():
    """Convolutions with a bias that the batch norm behind them takes away again."""
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, CLASSES)
    return nn.Sequential(*layers)


def pictures(count, seed=0):
    x = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))
    return Images(x, torch.arange(count) % CLASSES, CLASSES)


def behind(network, images, recipe=ONE_STEP):
    (update,) = attacked_updates(seen_updates(network, [images], recipe), 1)
    return update


@pytest.mark.parametrize("lr", [0.1, 1e-3, 1024.0])
@pytest.mark.parametrize(("make", "count"), [(normed, 4), (Attentive, 4), (Attentive, 1)])
def test_true_images_explain_an_update_whatever_is_zero_in_theory(make, count, lr):
    images = pictures(count)
    explanation = Explanation(behind(make(), images, Recipe(batch_size=0, lr=lr)), images.y, count)
    assert explanation.mismatch(images.x, images.y) < 1e-4
    assert explanation.mismatch_of_noise(images.y) > 1e-3
    assert explanation.mismatch(pictures(count, 5).x, images.y) > 1e-3


def test_several_local_steps_are_explained_too():
    images = pictures(4)
    update = behind(normed(), images, Recipe(epochs=3, batch_size=0, lr=0.1))
    explanation = Explanation(update, images.y, 4, simulate=16)
    assert explanation.mismatch(images.x, images.y) < 1e-4 < explanation.mismatch_of_noise(images.y)


def test_a_tensor_that_is_not_zero_still_counts():
    images = pictures(4)
    update = behind(normed(), images)
    update.protocol.layout.named(update.delta)["0.bias"].add_(0.01)
    assert Explanation(update, images.y, 4).mismatch(images.x, images.y) > 0.1


def test_where_rounding_is_all_there_is_nothing_is_explained():
    part, seen = [torch.ones(3)], [torch.ones(3)]
    assert worst_tensor(part, seen, [0.0]) == pytest.approx(0.0, abs=1e-12)
    assert worst_tensor(part, seen, [2 / FEW]) == 1.0


def test_gradients_too_short_to_square_are_compared_and_broken_ones_explain_nothing():
    short = [torch.tensor([1e-38, 0.0])]
    assert worst_tensor(short, short, [0.0]) == pytest.approx(0.0, abs=1e-12)
    assert worst_tensor([torch.tensor([torch.nan, 1.0])], [torch.ones(2)], [0.0]) == 2.0
    assert worst_tensor([torch.zeros(2)], [torch.ones(2)], [0.0]) == 1.0


def test_asking_leaves_the_network_as_it_was():
    images, network = pictures(4), normed()
    update, before = behind(network, images), deepcopy(network.state_dict())
    Explanation(update, images.y, 4).mismatch(images.x, images.y)
    held = update.protocol.architecture.state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in held.items())


def test_the_strongest_inversion_takes_what_patches_prove_through_attention():
    images = pictures(1)
    update = behind(Attentive(), images)
    rebuilt = StrongestInversion(seconds=0.1).rebuild(update, Knowledge(), torch.Generator())
    assert "by patch-leak" in rebuilt.note
    assert torch.allclose(rebuilt.x, images.x, atol=1e-2)
