"""Closed forms for vision transformers with learned positions."""

import pytest
import torch
from conftest import make_images
from sent_updates import gradients_of, seen_updates
from torch import Tensor, nn

from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.april import find_patches, patches_from_embedding, tokens_from_attention
from glasshouse.attacks.inversion.exact import APRILAnalytic, PatchLeak
from glasshouse.data.sources import load
from glasshouse.errors import CannotRun
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import paired_psnr
from glasshouse.models import build
from glasshouse.models.vit import TransformerBlock, cut

SHAPE = (2, 8, 8)
RNG = torch.Generator().manual_seed(0)


class UsualTransformer(nn.Module):
    """A convolution cuts patches, positions are added, and every block has its norms and shortcuts."""

    def __init__(self, channels: int = 1, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Conv2d(channels, width, 2, stride=2)
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.Sequential(TransformerBlock(width, 4), TransformerBlock(width, 4))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embedding(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], 1) + self.position
        return self.head(self.blocks(tokens)[:, 0])


def april(shape=SHAPE) -> nn.Module:
    torch.manual_seed(0)
    return build("april-vit", shape, 4)


def test_the_tokens_solve_the_equations_of_the_attention():
    network, image = april().double(), torch.rand(1, *SHAPE, dtype=torch.float64)
    weights, gradients = gradients_of(network, image, torch.tensor([2]))
    embedded = network.embedding(cut(image, network.side))
    tokens = (torch.cat([network.class_token, embedded], 1) + network.position)[0].detach()
    name = "attention.queries_keys_values.weight"
    pairs = list(zip(weights[name].chunk(3), gradients[name].chunk(3)))  # queries, keys and values apart
    solved = tokens_from_attention(gradients["position"][0], pairs, torch.zeros_like(tokens))
    torch.testing.assert_close(solved, tokens, rtol=0, atol=1e-8)


def test_the_patches_solve_the_equations_of_their_embedding():
    network, image = april().double(), torch.rand(1, *SHAPE, dtype=torch.float64)
    _, gradients = gradients_of(network, image, torch.tensor([2]))
    solved = patches_from_embedding(gradients["position"][0, 1:], gradients["embedding.weight"])
    torch.testing.assert_close(solved, cut(image, network.side)[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("network", [april(), UsualTransformer(channels=2)])
def test_the_order_of_the_pixels_is_found_by_looking(network):
    patches, image = find_patches(network, SHAPE), torch.rand(SHAPE)
    assert (patches.embedding, patches.position) == ("embedding", "position")
    assert torch.equal(patches.image(image.flatten()[patches.order], SHAPE), image)


def test_directions_below_the_precision_stay_grey():
    D = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1e-9, 0.0]], dtype=torch.float64)
    x = torch.tensor([[0.2], [0.9]], dtype=torch.float64)
    torch.testing.assert_close(patches_from_embedding(D, D.T @ x), x)
    known = patches_from_embedding(D, D.T @ x, precision=1e-6)
    torch.testing.assert_close(known, torch.tensor([[0.2], [0.5]], dtype=torch.float64))


def test_more_tokens_than_equations_are_refused():
    with pytest.raises(CannotRun, match="4 tokens of width 3"):
        patches_from_embedding(torch.rand(4, 3), torch.rand(3, 2))


@pytest.mark.parametrize("attack", [APRILAnalytic(), PatchLeak()])
def test_the_images_of_clients_with_one_image_each_come_back_from_their_updates(attack):
    images = make_images(4)
    access = seen_updates(april((1, 8, 8)), [images[[place]] for place in range(4)])
    found = attack.run(access, Knowledge(), RNG)
    assert [part.clients for part in found.parts] == [(0,), (1,), (2,), (3,)]
    assert paired_psnr(images.x, found.x).min() > 40


def test_the_embedding_gives_away_what_the_usual_transformer_hides_from_april():
    images = make_images(2)
    access = seen_updates(UsualTransformer(), [images[[0]], images[[1]]])
    with pytest.raises(CannotRun, match="a norm stands before the first attention"):
        APRILAnalytic().run(access, Knowledge(), RNG)
    assert paired_psnr(images.x, PatchLeak().run(access, Knowledge(), RNG).x).min() > 40


def test_a_shortcut_round_the_first_attention_is_noticed():
    network = april((1, 8, 8))
    network.attention = _WithShortcut(network.attention)
    assert find_patches(network, (1, 8, 8)).projections == ()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vit", r"begins with LayerNorm 'encoder.embedding.0', not with a linear embedding of patches"),
        ("lenet", r"begins with Conv2d '0', not with a linear embedding"),
        ("mlp", r"begins with Linear '1.*not with a linear embedding"),
    ],
)
def test_other_networks_are_refused_with_the_reason(name, reason):
    torch.manual_seed(0)
    access = seen_updates(build(name, (1, 8, 8), 4), [make_images(1)])
    for attack in (APRILAnalytic(), PatchLeak()):
        with pytest.raises(CannotRun, match=reason):
            attack.run(access, Knowledge(), RNG)


def test_batches_and_several_steps_are_refused():
    network, images = april((1, 8, 8)), make_images(2)
    with pytest.raises(CannotRun, match="holds 2 images"):
        APRILAnalytic().run(seen_updates(network, [images]), Knowledge(), RNG)
    several = seen_updates(network, [images[[0]]], Recipe(epochs=3, batch_size=0, lr=0.1))
    with pytest.raises(CannotRun, match="3 local steps"):
        APRILAnalytic().run(several, Knowledge(), RNG)


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize("attack", [APRILAnalytic(updates=8), PatchLeak(updates=8)])
def test_cifar_images_come_back_above_30_db_from_updates(attack):
    images = load("cifar10").test[list(range(8))]
    torch.manual_seed(0)
    access = seen_updates(build("april-vit", (3, 32, 32), 10), [images[[place]] for place in range(8)])
    assert paired_psnr(images.x, attack.run(access, Knowledge(), RNG).x).min() > 30


class _WithShortcut(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x)
