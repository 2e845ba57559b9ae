"""What a step may do to a batch, to its loss and to its gradients, alone and composed."""

import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES, make_images, make_plain_model

from glasshouse.data.images import Images
from glasshouse.defences.defence import Defence, Stack
from glasshouse.errors import BadInput
from glasshouse.learning.fit import batches, fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import numpy_rng
from glasshouse.learning.step import PLAIN, Step, Transform, compose

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1)
IMAGES = make_images(20)


def trained(step: Step = PLAIN, images: Images = IMAGES, recipe: Recipe = RECIPE) -> torch.Tensor:
    model = make_plain_model()
    return fit(model, read_vector(model), images, recipe, 0, step)


class Decay(Step):
    """The L2 penalty as a loss term."""

    def __init__(self, weight):
        self.weight = weight

    def loss(self, model, logits, y):
        return self.weight / 2 * sum(parameter.square().sum() for parameter in model.parameters())


class Scale(Step):
    def __init__(self, factor):
        self.factor = factor

    def steer(self, parameters, rng):
        for parameter in parameters:
            parameter.grad *= self.factor


class Clipped(Step):
    """The mean of the samples' gradients, each scaled down to the length `most`."""

    def __init__(self, most):
        self.most = most

    def backward(self, model, x, y, loss, rng):
        parameters = list(model.parameters())
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for i in range(len(x)):
            gradients = torch.autograd.grad(loss(x[i : i + 1], y[i : i + 1]), parameters)
            norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
            for entry, gradient in zip(total, gradients):
                entry += gradient * min(1.0, self.most / norm.item()) / len(x)
        for parameter, entry in zip(parameters, total):
            parameter.grad = entry


def test_a_step_chooses_the_images_that_are_learned():
    class Blank(Step):
        def prepare(self, model, x, y, rng):
            assert model.training
            assert x.shape[1:] == (1, 8, 8)
            assert len(x) == len(y)
            return torch.zeros_like(x)

    blank = Images(torch.zeros_like(IMAGES.x), IMAGES.y, CLASSES)
    assert torch.equal(trained(Blank()), trained(images=blank))
    assert torch.equal(trained(Transform(lambda x, rng: torch.zeros_like(x))), trained(images=blank))


def test_an_extra_loss_term_acts_through_its_gradient():
    decayed = trained(recipe=Recipe(epochs=2, batch_size=8, lr=0.1, weight_decay=0.3))
    assert torch.allclose(trained(Decay(0.3)), decayed, atol=1e-6)
    assert not torch.allclose(trained(), decayed, atol=1e-3)


def test_steered_gradients_are_those_that_the_optimiser_gets():
    faster = trained(recipe=Recipe(epochs=2, batch_size=8, lr=0.2))
    assert torch.allclose(trained(Scale(2.0)), faster, atol=1e-6)


def test_a_step_may_compute_the_gradient_of_a_batch_from_those_of_its_samples():
    assert torch.allclose(trained(Clipped(1e6)), trained(), atol=1e-6)
    model = make_plain_model()
    position, layout = read_vector(model), Layout.of(model)

    def sample_loss(vector, x, y):
        return F.cross_entropy(torch.func.functional_call(model, layout.named(vector), x[None]), y[None])

    per_sample = torch.func.vmap(torch.func.grad(sample_loss), in_dims=(None, 0, 0))
    for batch in batches(len(IMAGES), RECIPE, numpy_rng(0, "batches")):
        gradients = per_sample(position, IMAGES.x[batch], IMAGES.y[batch])
        factors = (0.5 / gradients.norm(dim=1)).clamp(max=1)
        assert (factors < 1).any()
        position = position - RECIPE.lr * (factors[:, None] * gradients).mean(0)
    assert torch.allclose(trained(Clipped(0.5)), position, atol=1e-5)


def test_composed_steps_act_in_their_order():
    order = []

    class Noted(Step):
        def __init__(self, name):
            self.name = name

        def prepare(self, model, x, y, rng):
            order.append(self.name)
            return x

    trained(compose(Noted("a"), compose(Noted("b"), PLAIN, Noted("c"))), recipe=Recipe(batch_size=0))
    assert order == ["a", "b", "c"]
    both = compose(Transform(lambda x, rng: x + 1), Transform(lambda x, rng: 2 * x))
    x = torch.zeros(1, 1, 8, 8)
    assert torch.equal(both.prepare(make_plain_model(), x, torch.zeros(1), torch.Generator()), x + 2)


def test_composed_loss_terms_and_steerings_add_up():
    assert torch.allclose(trained(compose(Decay(0.1), Decay(0.2))), trained(Decay(0.3)), atol=1e-6)
    assert torch.equal(trained(compose(Scale(4.0), Scale(0.5))), trained(Scale(2.0)))


def test_the_step_that_computes_the_gradient_sees_the_images_and_the_terms_of_the_others():
    flip = Transform(lambda x, rng: x.flip(3))
    others = compose(flip, Decay(0.3), Scale(0.5))
    assert torch.allclose(trained(compose(Clipped(1e6), others)), trained(others), atol=1e-6)


def test_composing_nothing_is_plain_training():
    assert torch.equal(trained(compose()), trained())
    assert torch.equal(trained(compose(PLAIN, PLAIN)), trained())


def test_two_steps_cannot_both_compute_the_gradient():
    with pytest.raises(BadInput, match=r"Clipped and Clipped both compute .* leave one of them out"):
        compose(Clipped(1.0), Scale(1.0), Clipped(2.0))


def test_what_steps_draw_follows_from_the_seed_of_the_run():
    def noise():
        return Transform(lambda x, rng: x + torch.rand(x.shape, generator=rng))

    torch.manual_seed(0)
    first = trained(noise())
    torch.manual_seed(1)
    assert torch.equal(trained(noise()), first)


def test_a_defence_that_overrides_on_batch_alone_transforms_what_clients_train_on():
    class Darken(Defence):
        def on_batch(self, x, rng):
            return x / 2

    dark = Images(IMAGES.x / 2, IMAGES.y, CLASSES)
    darker = Images(IMAGES.x / 4, IMAGES.y, CLASSES)
    assert torch.equal(trained(Stack([Defence(), Darken()]).training()), trained(images=dark))
    assert torch.equal(trained(Stack([Darken(), Darken()]).training()), trained(images=darker))
