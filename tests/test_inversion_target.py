"""The gradient that images would give, against what training on them gives."""

import pytest
import torch
from conftest import CLASSES, SHAPE, make_images, make_model, make_plain_model

from glasshouse.attacks.inversion.target import LocalTraining, Matcher, Target
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe

IMAGES = make_images(6)


def normed():
    """A network with batch norm, and no dropout: nobody can repeat its masks."""
    model = make_model()
    model[4].p = 0.0
    return model


@pytest.mark.parametrize("network", [make_plain_model, normed])
@pytest.mark.parametrize("recipe", [
    Recipe(epochs=1, batch_size=0, lr=0.1),
    Recipe(epochs=3, batch_size=0, lr=0.1, momentum=0.5, weight_decay=0.01),
    Recipe(epochs=3, batch_size=0, lr=0.2, momentum=0.5, schedule="cosine", warmup=1, clip_grad_norm=0.2),
])  # fmt: skip
def test_simulated_training_moves_the_weights_as_training_does_and_can_be_differentiated(network, recipe):
    model = laid_out(network())
    layout, start = Layout.of(model), read_vector(model)
    moved = fit(model, start, IMAGES, recipe, 0) - start
    everything = torch.arange(len(IMAGES))
    training = LocalTraining(recipe, ((everything,),) * recipe.epochs)
    fresh = network().train()
    target = Target(
        fresh,
        layout,
        moved,
        SHAPE,
        CLASSES,
        len(IMAGES),
        IMAGES.y,
        training=training,
        clip=recipe.clip_grad_norm,
    )
    x = IMAGES.x.expand(recipe.epochs, *IMAGES.x.shape).clone().requires_grad_()
    matcher = Matcher(target)
    gradient = matcher(x, IMAGES.y)
    expected = -moved / recipe.effective_rate(len(IMAGES))
    for name, part in zip(matcher.names, gradient):
        assert torch.allclose(part, layout.named(expected)[name], atol=1e-4)
    sum(part.square().sum() for part in gradient).backward()
    assert torch.isfinite(x.grad).all()
    assert torch.equal(read_vector(fresh), start)
