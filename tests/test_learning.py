import doctest

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_images, make_model, make_plain_model, make_split
from torch import nn

from glasshouse.errors import BadInput
from glasshouse.learning import recipe, seeds
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import Evaluator, accuracy, predict
from glasshouse.learning.fit import batches, fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.learning.shared import Shared


@pytest.mark.parametrize("module", [recipe, seeds])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0


def test_a_vector_holds_every_floating_tensor_and_comes_back_unchanged():
    model = make_model()
    vector = read_vector(model)
    layout = Layout.of(model)
    floating = sum(t.numel() for t in model.state_dict().values() if t.is_floating_point())
    assert layout.size == len(vector) == floating
    assert layout.trainable == sum(p.numel() for p in model.parameters())
    other = make_model(seed=1)
    write_vector(other, vector)
    for name, tensor in layout.named(vector).items():
        assert torch.equal(tensor, other.state_dict()[name])


def test_a_vector_does_not_depend_on_the_memory_order_of_the_weights():
    assert torch.equal(read_vector(make_model()), read_vector(laid_out(make_model())))


def test_fit_equals_a_loop_written_out():
    images, recipe = make_images(25), Recipe(epochs=2, batch_size=10, lr=0.1, momentum=0.5, weight_decay=0.01)
    model = make_plain_model()
    start = read_vector(model)
    reached = fit(make_plain_model(), start, images, recipe, seed=3)

    velocity = [torch.zeros_like(p) for p in model.parameters()]
    rng = numpy_rng(3, "batches")
    for _ in range(2):
        order = torch.from_numpy(rng.permutation(25))
        for batch in (order[:10], order[10:20], order[20:]):
            loss = F.cross_entropy(model(images.x[batch]), images.y[batch])
            slopes = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for p, v, slope in zip(model.parameters(), velocity, slopes):
                    v.mul_(0.5).add_(slope + 0.01 * p)
                    p.sub_(0.1 * v)
    torch.testing.assert_close(reached, read_vector(model), rtol=1e-5, atol=1e-6)


def test_fit_depends_on_its_arguments_alone():
    images, recipe, model = make_images(30), Recipe(epochs=2, batch_size=8), make_model()
    start = read_vector(model)
    first = fit(model, start, images, recipe, seed=1)
    torch.rand(10)
    assert torch.equal(fit(model, start, images, recipe, seed=1), first)
    assert not torch.equal(fit(model, start, images, recipe, seed=2), first)


def test_fit_leaves_the_global_generator_alone():
    model, images = make_model(), make_images(10)
    before = torch.get_rng_state()
    fit(model, read_vector(model), images, Recipe(), seed=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("recipe", "sizes"), [
    (Recipe(epochs=2, batch_size=4), [4, 4, 2, 4, 4, 2]),
    (Recipe(epochs=2, batch_size=3), [3, 3, 4, 3, 3, 4]),
    (Recipe(batch_size=1), [1] * 10),
    (Recipe(batch_size=9), [10]),
    (Recipe(batch_size=0), [10]),
    (Recipe(batch_size=64), [10]),
])  # fmt: skip
def test_batches_cover_each_epoch_once(recipe, sizes):
    drawn = list(batches(10, recipe, np.random.default_rng(0)))
    assert [len(batch) for batch in drawn] == sizes
    assert recipe.total_steps(10) == len(sizes)
    assert recipe.last_batch(10) == sizes[-1]
    epoch = torch.cat(drawn[: len(drawn) // recipe.epochs])
    assert sorted(epoch.tolist()) == list(range(10))


def test_a_model_remembers_nothing_of_the_last_client():
    """With momentum=None batch norm weighs by its step counter, which no vector holds."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, momentum=None), nn.Flatten(), nn.Linear(72, 4)
    )
    start, images = read_vector(model), make_images(20)
    first = fit(model, start, images, Recipe(batch_size=5), seed=0)
    assert torch.equal(fit(model, start, images, Recipe(batch_size=5), seed=0), first)


def test_batch_norm_on_one_value_is_refused_with_a_remedy():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    fit(model, read_vector(model), make_images(11), Recipe(batch_size=10), seed=0)
    with pytest.raises(BadInput, match="batch_size of at least 2"):
        fit(model, read_vector(model), make_images(1), Recipe(), seed=0)


def test_the_cosine_schedule_falls_from_the_learning_rate_to_nearly_nothing():
    recipe = Recipe(lr=0.2, schedule="cosine")
    rates = [recipe.lr_at(step, 10) for step in range(10)]
    assert rates[0] == 0.2
    assert rates == sorted(rates, reverse=True)
    assert rates[5] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"momentum": 1.0},
        {"batch_size": -1},
    ],
)
def test_impossible_recipes_are_refused_with_the_value_and_the_rule(wrong):
    key = next(iter(wrong))
    with pytest.raises(BadInput, match=f"{key} = .*must be"):
        Recipe(**wrong)


def test_seeds_depend_on_the_whole_path():
    paths = [(), ("a",), ("b",), ("a", 0), ("a", 1), (0, "a"), ("a", 0, 0)]
    assert len({derive(0, *path) for path in paths} | {derive(1, *path) for path in paths}) == 2 * len(paths)


def test_prediction_is_in_eval_mode_and_without_gradients():
    model, images = make_model(), make_images(20)
    model.train()
    logits = predict(model, images.x)
    assert not model.training
    assert not logits.requires_grad
    assert torch.equal(logits, predict(model, images.x))
    assert accuracy(model, images) == (logits.argmax(1) == images.y).double().mean().item()


def test_shared_values_come_back_whole_and_read_once(tmp_path):
    images = make_images(10)
    handle = Shared.in_file({"images": images, "vector": np.arange(5.0)}, tmp_path / "value")
    value = handle.get()
    assert torch.equal(value["images"].x, images.x)
    assert torch.equal(value["images"].y, images.y)
    assert value["vector"].tolist() == [0, 1, 2, 3, 4]
    assert handle.get() is value


def test_changing_a_shared_array_in_a_worker_leaves_the_file_alone(tmp_path):
    handle = Shared.in_file(np.zeros(4), tmp_path / "value")
    before = (tmp_path / "value").read_bytes()
    handle.get()[:] = 1
    assert (tmp_path / "value").read_bytes() == before


def _square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_back_in_the_order_of_the_jobs(workers):
    with Engine(workers) as running:
        assert list(running.map(_square, range(20))) == [n * n for n in range(20)]


def test_the_evaluator_scores_like_a_plain_evaluation(engine):
    split, model = make_split(), make_model()
    evaluator = Evaluator(model, split.pool, split.test, engine)
    assert evaluator.accuracy(read_vector(model)) == accuracy(model, split.images("test"))


def test_an_engine_that_is_not_installed_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray.util.joblib", None)
    with pytest.raises(BadInput, match=r"pip install 'glasshouse\[ray\]'"), Engine(2, "ray"):
        pass


def test_zero_workers_are_refused():
    with pytest.raises(BadInput, match="workers = 0"):
        Engine(0)


def test_the_effective_rate_is_what_a_constant_gradient_moves_a_weight_by():
    annealed = [{"schedule": schedule} for schedule in ("constant", "cosine", "halving", "steps")]
    for options in (*annealed, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}):
        recipe = Recipe(epochs=7, batch_size=5, lr=0.1, **options)
        weight = torch.zeros(1, dtype=torch.float64)
        optimiser = recipe.make_optimiser([weight])
        for rate in recipe.rates(11):
            optimiser.param_groups[0]["lr"] = rate
            weight.grad = torch.ones_like(weight)
            optimiser.step()
        assert -weight.item() == pytest.approx(recipe.effective_rate(11))
        if not recipe.momentum:
            assert -weight.item() == pytest.approx(recipe.summed_rate(11))
