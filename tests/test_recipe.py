"""Optimisers, schedules, clipping and augmentation against torch's own, and what a recipe refuses."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_images, make_plain_model, make_split
from torch import nn
from torch.optim import lr_scheduler

from glasshouse.errors import BadInput
from glasshouse.federation.conditions import PROBE_ROUNDS
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies.fedavg import FedSGD
from glasshouse.learning.augment import AUGMENTATIONS, augmentations, augmented
from glasshouse.learning.augment_options import CHECKS
from glasshouse.learning.clipping import NoisySum
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import PLAIN

IMAGES = make_images(12)


def by_torch(steps, optimiser, scheduler=None, *, clip=None, per_step=1, images=IMAGES):
    """The plain model's weights after steps on all images; the scheduler steps after every `per_step`."""
    model = make_plain_model()
    running = optimiser(model.parameters())
    scheduled = None if scheduler is None else scheduler(running)
    for step in range(steps):
        running.zero_grad()
        F.cross_entropy(model(images.x), images.y).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        running.step()
        if scheduled is not None and (step + 1) % per_step == 0:
            scheduled.step()
    return read_vector(model)


def by_recipe(recipe, seed=0):
    model = make_plain_model()
    return fit(model, read_vector(model), IMAGES, recipe, seed)


def assert_same(ours, theirs):
    assert (theirs - read_vector(make_plain_model())).abs().max() > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("optimiser", "options"), [
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    (torch.optim.AdamW, {"weight_decay": 0.1}),
    (torch.optim.AdamW, {"betas": (0.5, 0.9), "eps": 1e-3}),
    (torch.optim.RMSprop, {}),
    (torch.optim.RMSprop, {"alpha": 0.5, "momentum": 0.9, "eps": 1e-2, "weight_decay": 0.01}),
])  # fmt: skip
def test_each_optimiser_steps_as_that_of_torch(optimiser, options):
    told = {"weight_decay": 0, **options}
    theirs = by_torch(6, lambda parameters: optimiser(parameters, lr=0.02, **told))
    recipe = Recipe(epochs=6, batch_size=0, lr=0.02, optimiser=optimiser.__name__.lower(), **options)
    assert_same(by_recipe(recipe), theirs)


def warm(main, units):
    """torch's scheduler that rises linearly for so many units, and goes on as `main`."""
    return lambda running: lr_scheduler.SequentialLR(
        running,
        [lr_scheduler.LinearLR(running, 1 / (units + 1), total_iters=units), main(running)],
        milestones=[units],
    )


SCHEDULES = [
    ({"schedule": "cosine"}, lambda running: lr_scheduler.CosineAnnealingLR(running, 8)),
    ({"schedule": "step", "step_size": 3}, lambda running: lr_scheduler.StepLR(running, 3)),
    ({"schedule": "step", "step_size": 2, "gamma": 0.5}, lambda r: lr_scheduler.StepLR(r, 2, 0.5)),
    ({"warmup": 3}, lambda running: lr_scheduler.LinearLR(running, 1 / 4, total_iters=3)),
    ({"schedule": "cosine", "warmup": 3}, warm(lambda r: lr_scheduler.CosineAnnealingLR(r, 5), 3)),
    ({"schedule": "step", "step_size": 2, "warmup": 2}, warm(lambda r: lr_scheduler.StepLR(r, 2), 2)),
    ({"schedule": "steps"}, lambda running: lr_scheduler.MultiStepLR(running, [3, 5, 7])),
    ({"schedule": "halving"}, lambda running: lr_scheduler.StepLR(running, 5, 0.5)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize(("options", "scheduler"), SCHEDULES)
def test_each_schedule_sets_the_rates_of_torch_in_one_run(options, scheduler):
    theirs = by_torch(8, lambda parameters: torch.optim.SGD(parameters, lr=0.2), scheduler)
    assert_same(by_recipe(Recipe(epochs=8, batch_size=0, lr=0.2, **options)), theirs)


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize(("options", "scheduler"), SCHEDULES)
def test_each_schedule_over_the_rounds_is_that_of_torch_stepped_once_a_round(options, scheduler, engine):
    split, model = make_split((12,)), make_plain_model()
    recipe = Recipe(epochs=2, batch_size=0, lr=0.2, rounds=8, **options)
    ours = Federation(model, split, recipe, engine=engine).run(read_vector(model), Plan(rounds=8)).vector
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.2)  # noqa: E731
    assert_same(ours, by_torch(16, sgd, scheduler, per_step=2, images=split.client(0)))


def test_warm_up_within_a_run_rises_with_every_step():
    rates = Recipe(epochs=3, batch_size=5, lr=1.0, warmup=1).rates(15)  # three steps an epoch
    assert rates == [0.25, 0.5, 0.75, *[1.0] * 6]


def test_a_round_beyond_the_plan_has_the_last_rate_and_one_without_a_number_the_largest():
    recipe = Recipe(lr=0.4, schedule="cosine", warmup=2, rounds=6)
    assert recipe.in_round(99) == recipe.in_round(5)
    assert recipe.in_round(None).rates(64) == recipe.rates(64) == [0.4, 0.4]
    assert recipe.in_round(0).lr == pytest.approx(0.4 / 3)
    assert Recipe(schedule="cosine").in_round(3) == Recipe(schedule="cosine")


def test_a_rate_that_leaves_the_range_of_floats_still_trains():
    recipe = Recipe(schedule="step", step_size=1, gamma=1e-30, rounds=100)
    assert 0 < recipe.in_round(99).lr < 1e-300


LIVELY = Recipe(
    epochs=2, batch_size=4, optimiser="adamw", lr=0.01, schedule="cosine", warmup=1, rounds=4,
    clip_grad_norm=0.5, augment="crop(pad=1)+flip", label_smoothing=0.1, mix_up=0.2,
)  # fmt: skip


def test_training_goes_on_where_it_stopped_and_follows_from_its_arguments(tmp_path, engine):
    split, model = make_split((8, 6, 5)), make_plain_model()
    start = read_vector(model)
    federation = Federation(model, split, LIVELY, engine=engine)
    whole = federation.run(start, Plan(rounds=4))
    federation.run(start, Plan(rounds=2), record=Record(tmp_path))
    resumed = federation.run(start, Plan(rounds=4), record=Record(tmp_path))
    assert torch.equal(whole.vector, resumed.vector)


def test_a_crafting_servers_rounds_have_the_largest_rate(engine):
    split, model = make_split((12,)), make_plain_model()
    start = read_vector(model)
    moved = {}
    for name, recipe in {
        "spanning": Recipe(batch_size=0, lr=0.2, schedule="cosine", warmup=3, rounds=8),
        "constant": Recipe(batch_size=0, lr=0.2),
    }.items():
        federation = Federation(model, split, recipe, engine=engine)
        moved[name] = [
            federation.exchange(start, [0], number).delivery.mean for number in (0, PROBE_ROUNDS + 1)
        ]
    torch.testing.assert_close(moved["spanning"][0], moved["constant"][0] / 4)
    assert torch.equal(moved["spanning"][1], moved["constant"][1])


@pytest.mark.parametrize("clip", [0.05, 0.5, 50.0])
def test_gradients_are_cut_as_torch_cuts_them(clip):
    theirs = by_torch(4, lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.5), clip=clip)
    recipe = Recipe(epochs=4, batch_size=0, lr=0.5, momentum=0.5, clip_grad_norm=clip)
    assert_same(by_recipe(recipe), theirs)
    moved = by_recipe(dataclasses.replace(recipe, epochs=1)) - read_vector(make_plain_model())
    assert moved.norm() < 0.5 * clip * 1.001


def test_per_sample_training_without_noise_is_plain_training_whatever_the_recipe():
    """Every sample is drawn where the batch is the whole data set, and no gradient is that long."""
    recipe = dataclasses.replace(LIVELY, batch_size=0, mix_up=0.0, rounds=0, warmup=0, augment="")
    model = make_plain_model()
    plain, per_sample = (
        fit(model, read_vector(make_plain_model()), IMAGES, recipe, 0, step)
        for step in (PLAIN, NoisySum(norm=1e6, noise=0.0))
    )
    torch.testing.assert_close(per_sample, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("spec", [
    "crop", "flip", "rotation", "jitter", "crop(pad=2)+flip", "rotation(degrees=5)+jitter(contrast=0.5)",
])  # fmt: skip
def test_augmentation_keeps_shapes_and_the_range_and_follows_from_its_seed(spec):
    x = torch.rand(20, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    before, rng = x.clone(), torch.Generator().manual_seed(1)
    first, second = augmented(x, spec, rng), augmented(x, spec, rng)
    assert torch.equal(x, before)
    assert first.shape == x.shape
    assert first.min() >= 0
    assert first.max() <= 1
    assert not torch.equal(first, x)
    assert not torch.equal(first, second)
    assert torch.equal(first, augmented(x, spec, torch.Generator().manual_seed(1)))


def test_a_full_turn_is_the_image_itself_and_half_a_turn_its_rotation():
    x = torch.rand(1, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    (rotation,) = augmentations("rotation(degrees=180)")

    def turned(share):
        drawn = torch.tensor([share])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "rand", lambda *_, **__: drawn)
            return rotation(x, torch.Generator())

    torch.testing.assert_close(turned(0.5), x, atol=1e-5, rtol=0)
    torch.testing.assert_close(turned(1.0), x.rot90(2, (2, 3)), atol=1e-5, rtol=0)
    quarter = turned(0.75)
    assert any(torch.allclose(quarter, x.rot90(k, (2, 3)), atol=1e-5) for k in (1, 3))


def test_every_epoch_of_a_training_sees_other_images():
    seen = []
    model = make_plain_model()
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    recipe = Recipe(epochs=3, batch_size=0, lr=1e-6, augment="crop(pad=2)")
    fit(model, read_vector(model), IMAGES[:1], recipe, 0)
    assert len(seen) == 3
    assert len({tuple(x.flatten().tolist()) for x in seen}) > 1


def test_fedsgd_takes_a_plain_step_whatever_the_optimiser_at_the_rate_of_its_round():
    recipe = Recipe(
        epochs=3, batch_size=4, optimiser="rmsprop", alpha=0.5, momentum=0.9, schedule="cosine", rounds=4
    )
    local = FedSGD().local(recipe)
    assert (local.optimiser, local.epochs, local.batch_size, local.momentum) == ("sgd", 1, 0, 0.0)
    assert local.in_round(2).lr == pytest.approx(recipe.lr / 2)
    assert FedSGD().local(Recipe(momentum=0.9, nesterov=True, epochs=3, warmup=2)).rates(9) == [0.05]


@pytest.mark.parametrize(("options", "words"), [
    ({"schedule": "linear"}, "schedule = 'linear' is unknown.*constant, cosine, halving, steps, step"),
    ({"optimiser": "lion"}, "optimiser = 'lion' is unknown; it must be one of sgd, adam, adamw, rmsprop"),
    ({"optimiser": "adamw", "momentum": 0.9}, "momentum = 0.9 is no option of adamw.*take sgd or rmsprop"),
    ({"optimiser": "adam", "nesterov": True}, "nesterov = True is no option of adam"),
    ({"betas": (0.9, 0.99)}, "betas = .* is no option of sgd"),
    ({"optimiser": "adam", "alpha": 0.9}, "alpha = 0.9 is no option of adam.*take rmsprop"),
    ({"optimiser": "adam", "betas": (0.9, 1.0)}, "betas = .* is out of range"),
    ({"eps": 1e-8}, "eps = 1e-08 is no option of sgd"),
    ({"optimiser": "adam", "eps": 0.0}, "eps = 0.0 is out of range"),
    ({"step_size": 3}, "step_size = 3 does not go with schedule = 'constant'"),
    ({"schedule": "cosine", "gamma": 0.5}, "gamma = 0.5 does not go with schedule = 'cosine'"),
    ({"schedule": "step"}, "step_size is missing"),
    ({"schedule": "step", "step_size": 0}, "step_size = 0 is out of range"),
    ({"schedule": "step", "step_size": 1, "gamma": 2.0}, "gamma = 2.0 is out of range"),
    ({"warmup": 1}, "warmup = 1 is out of range; it must be at least 0 and below the 1 epochs"),
    ({"warmup": 9, "rounds": 9}, "below the 9 rounds"),
    ({"clip_grad_norm": -1.0}, "clip_grad_norm = -1.0 is out of range"),
    ({"augment": "fliip"}, "augment = 'fliip': unknown augmentation 'fliip'; did you mean 'flip'"),
    ({"augment": "crp"}, "augment = 'crp': unknown augmentation 'crp'; did you mean 'crop'"),
    ({"augment": "crop(pixels=2)"}, "crop takes pad, and no 'pixels'"),
    ({"augment": "flip(p=2)"}, "flip takes no options"),
    ({"augment": "crop(pad=0)+flip"}, "crop pad = 0 is out of range"),
    ({"augment": "+"}, "unknown augmentation ''"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_in_one_line(options, words):
    with pytest.raises(BadInput, match=words) as refusal:
        Recipe(**options)
    assert "\n" not in str(refusal.value)


def test_a_cosine_over_many_rounds_falls_from_round_to_round_and_ends_above_zero():
    recipe = Recipe(lr=1.0, schedule="cosine", rounds=50)
    rates = [recipe.in_round(number).lr for number in range(50)]
    assert np.all(np.diff(rates) < 0)
    assert rates[0] == 1.0
    assert 0 < rates[-1] < 0.01


def test_a_wrong_augmentation_is_refused_before_torch_is_imported():
    code = (
        "import sys\nfrom glasshouse.learning.recipe import Recipe\n"
        "Recipe(augment='crop(pad=2)+flip')\n"
        "try: Recipe(augment='fliip')\nexcept ValueError as error: print(error)\n"
        "print([name for name in ('torch', 'numpy', 'scipy', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    refusal, imported = done.stdout.splitlines()
    assert refusal.startswith("augment = 'fliip': unknown augmentation 'fliip'; did you mean 'flip'")
    assert imported == "[]"


def test_every_augmentation_takes_the_options_that_are_checked():
    for name, kind in AUGMENTATIONS.items():
        assert [field.name for field in dataclasses.fields(kind)] == list(CHECKS[name])
    assert CHECKS.keys() == AUGMENTATIONS.keys()
