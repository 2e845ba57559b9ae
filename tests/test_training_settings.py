"""Schedules, precision, augmentation, batch norm's statistics and adversarial training."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from glasshouse.data.images import Images
from glasshouse.defences import make_defences
from glasshouse.defences.hardening import AdversarialTraining
from glasshouse.errors import BadInput
from glasshouse.learning.augment import crop_and_flip
from glasshouse.learning.evaluate import predict
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.statistics import recount_statistics

MARGIN = 4


def make_images(count: int = 24, seed: int = 0, shape: tuple[int, int, int] = (1, 6, 6)) -> Images:
    rng = torch.Generator().manual_seed(seed)
    return Images(torch.rand(count, *shape, generator=rng), torch.arange(count) % 3, 3)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))


def test_halving_halves_the_rate_after_every_five_epochs():
    recipe = Recipe(epochs=12, lr=0.8, schedule="halving")
    rates = [recipe.lr_at(step, 24) for step in range(24)]  # two steps an epoch
    assert rates == [0.8] * 10 + [0.4] * 10 + [0.2] * 4


def test_steps_lower_the_rate_to_a_tenth_three_times():
    recipe = Recipe(lr=1.0, schedule="steps")
    rates = [recipe.lr_at(step, 16) for step in range(16)]
    assert rates == pytest.approx([1.0] * 6 + [0.1] * 4 + [0.01] * 4 + [0.001] * 2)


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(BadInput, match="nesterov = True is out of range; it must be False without momentum"):
        Recipe(nesterov=True)


def test_bfloat16_training_stays_near_float32_and_keeps_float32_weights():
    images, model = make_images(), make_model()
    start = read_vector(model)
    ends = {
        precision: fit(model, start, images, Recipe(epochs=5, batch_size=8, lr=0.1, precision=precision), 0)
        for precision in ("float32", "bfloat16")
    }
    moved = (ends["float32"] - start).norm()
    assert ends["bfloat16"].dtype == torch.float32
    assert 0 < (ends["bfloat16"] - ends["float32"]).norm() < 0.1 * moved


def test_crops_shift_by_at_most_the_margin_and_flip_half_of_the_images():
    x = torch.rand(400, 2, 10, 10) + 0.1
    wide = F.pad(x, (MARGIN,) * 4)
    seen = []
    cropped = crop_and_flip(x, torch.Generator().manual_seed(0))
    assert cropped.shape == x.shape
    for image, padded in zip(cropped[:60], wide[:60]):
        views = {
            (top, left, flipped): (
                padded[:, top : top + 10, left : left + 10].flip(2)
                if flipped
                else padded[:, top : top + 10, left : left + 10]
            )
            for top in range(2 * MARGIN + 1)
            for left in range(2 * MARGIN + 1)
            for flipped in (False, True)
        }
        (place,) = [key for key, view in views.items() if torch.equal(view, image)]
        seen.append(place)
    assert len({(top, left) for top, left, _ in seen}) > 30
    assert 0.25 < np.mean([flipped for *_, flipped in seen]) < 0.75
    again = crop_and_flip(x, torch.Generator().manual_seed(0))
    assert torch.equal(cropped, again)


def test_recounted_statistics_are_those_of_the_images():
    images = make_images(50, shape=(2, 6, 6))
    model = nn.Sequential(nn.BatchNorm2d(2, momentum=0.1), nn.Flatten(), nn.Linear(72, 3))
    assert recount_statistics(model, images)
    layer = model[0]
    assert torch.allclose(layer.running_mean, images.x.mean((0, 2, 3)), atol=1e-6)
    assert torch.allclose(layer.running_var, images.x.var((0, 2, 3)), atol=1e-6)
    assert layer.momentum == 0.1
    assert not any(module.training for module in model.modules())
    assert not recount_statistics(make_model(), make_images())


def test_adversarial_training_asks_the_model_in_eval_mode_and_leaves_it_in_train_mode():
    images, modes = make_images(), []
    model = nn.Sequential(nn.BatchNorm2d(1), make_model())
    model.register_forward_hook(lambda module, inputs, answers: modes.append(module.training))
    before = read_vector(model)
    AdversarialTraining(steps=3).prepare(model.train(), images.x, images.y, torch.Generator())
    assert modes == [False] * 3
    assert all(module.training for module in model.modules())
    assert torch.equal(read_vector(model), before)


def test_adversarial_training_raises_the_loss_within_its_limit():
    images, model = make_images(), make_model().eval()
    rng = torch.Generator().manual_seed(0)
    moved = AdversarialTraining(eps=0.1, steps=5).prepare(model, images.x, images.y, rng)
    assert (moved - images.x).abs().max() <= 0.1 + 1e-6
    assert moved.min() >= 0
    assert moved.max() <= 1
    before, after = (F.cross_entropy(predict(model, x), images.y) for x in (images.x, moved))
    assert after > before


def test_adversarial_training_makes_a_model_more_robust():
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = torch.tensor(digits.images[:600, None] / 16, dtype=torch.float32)
    images = Images(x, torch.tensor(digits.target[:600]), 10)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    start, recipe = read_vector(model), Recipe(epochs=15, batch_size=16, lr=0.1)
    rng = torch.Generator().manual_seed(1)
    robust = []
    for spec in ("none", "adversarial-training(eps=0.15,steps=5)"):
        fit(model, start, images, recipe, 0, make_defences(spec).training())
        attacked = AdversarialTraining(eps=0.15, steps=20).prepare(model, images.x, images.y, rng)
        robust.append((predict(model, attacked).argmax(1) == images.y).double().mean().item())
    assert robust[1] > robust[0] + 0.15


def test_adversarial_training_refuses_options_out_of_range():
    for spec in (
        "adversarial-training(eps=0)",
        "adversarial-training(eps=2)",
        "adversarial-training(eps=True)",
        "adversarial-training(eps=(0.1, 0.2))",
        "adversarial-training(steps=0)",
    ):
        with pytest.raises(BadInput, match="out of range"):
            make_defences(spec)
