"""Defences that change how a federation trains, and the channel that its updates take."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES, make_images, make_model, make_plain_model, make_split

from glasshouse.auditing.case import protocol_of
from glasshouse.defences import make_defences
from glasshouse.defences.defence import Defence, Stack
from glasshouse.errors import BadInput
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.shadows import ShadowSet, Training, train_shadows
from glasshouse.federation.strategies.scaffold import SCAFFOLD
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import batches, fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.mixing import mixed, own_labels
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import numpy_rng
from glasshouse.learning.step import Step

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1, weight_decay=0.01)
TRAINED = [
    "larger-batches(factor=2)",
    "more-local-steps(factor=2)",
    "mix-up(alpha=1.0)",
    "label-smoothing(amount=0.2)",
    "weight-decay(amount=0.1)",
]


def federation(engine, spec="none", **options):
    options.setdefault("split", make_split((30, 20, 10)))
    model = options.pop("model", None) or make_model()
    return Federation(
        model, options.pop("split"), RECIPE, engine=engine, defences=make_defences(spec), **options
    )


@pytest.mark.parametrize(("spec", "changed"), [
    ("larger-batches(factor=4)", {"batch_size": 32}),
    ("more-local-steps(factor=3)", {"epochs": 6}),
    ("mix-up(alpha=0.4)", {"mix_up": 0.4}),
    ("label-smoothing(amount=0.2)", {"label_smoothing": 0.2}),
    ("weight-decay(amount=0.05)", {"weight_decay": 0.01 + 0.05}),
    ("larger-batches(factor=2)+weight-decay(amount=0.05)+clipping",
     {"batch_size": 16, "weight_decay": 0.01 + 0.05}),
    ("early-stopping", {}),
    ("secure-aggregation", {}),
])  # fmt: skip
def test_clients_train_by_the_recipe_that_the_defences_make(spec, changed, engine):
    expected = dataclasses.replace(RECIPE, **changed)
    defended = federation(engine, spec)
    assert defended.recipe == expected
    assert protocol_of(defended, make_model()).recipe == expected
    start = read_vector(make_model())
    if "clipping" not in spec and "secure" not in spec:
        plain = Federation(make_model(), make_split((30, 20, 10)), expected, engine=engine)
        ran = [one.run(start, Plan(rounds=1)).vector for one in (defended, plain)]
        assert torch.equal(*ran)


def test_all_data_at_once_stay_that_under_larger_batches():
    whole = Recipe(batch_size=0)
    assert make_defences("larger-batches").recipe(whole) == whole


@pytest.mark.parametrize(("rounds", "factor", "fewer"), [(30, 3, 10), (10, 4, 3), (1, 5, 1)])
def test_more_local_steps_take_about_as_many_epochs_in_fewer_rounds(rounds, factor, fewer):
    stack = make_defences(f"more-local-steps(factor={factor})")
    assert stack.rounds(rounds) == fewer
    assert stack.recipe(RECIPE).epochs * fewer >= RECIPE.epochs * rounds


def one_step(model, images, recipe):
    """The gradient of one step on all images at once."""
    start = read_vector(model)
    return (start - fit(model, start, images, recipe, 0)) / recipe.lr


def test_smoothed_labels_give_the_gradient_of_torchs_smoothed_cross_entropy():
    images, model = make_images(12), make_plain_model()
    recipe = Recipe(batch_size=0, lr=0.1, label_smoothing=0.3)
    targets = 0.7 * F.one_hot(images.y, CLASSES) + 0.3 / CLASSES
    for loss in (
        F.cross_entropy(model(images.x), images.y, label_smoothing=0.3),
        -(targets * model(images.x).log_softmax(1)).sum(1).mean(),
    ):
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        torch.testing.assert_close(
            one_step(make_plain_model(), images, recipe), expected, atol=1e-5, rtol=1e-4
        )


def test_mixed_images_and_targets_are_the_same_mixtures_of_the_batch():
    images, rng = make_images(12), np.random.default_rng(3)
    x, targets = mixed(images.x, images.y, CLASSES, 1.0, rng)
    again = np.random.default_rng(3)
    weight, partner = again.beta(1.0, 1.0), again.permutation(12)
    weight = max(weight, 1 - weight)
    torch.testing.assert_close(x, weight * images.x + (1 - weight) * images.x[partner])
    hard = F.one_hot(images.y, CLASSES).float()
    torch.testing.assert_close(targets, weight * hard + (1 - weight) * hard[partner])
    torch.testing.assert_close(targets.sum(0), hard.sum(0))
    assert torch.equal(own_labels(targets), images.y)


def test_the_weights_of_mixtures_follow_the_folded_beta_law():
    rng, images = np.random.default_rng(0), make_images(2)
    weights = [float(mixed(images.x, images.y, CLASSES, 0.5, rng)[1].max()) for _ in range(4000)]
    folded = np.maximum(drawn := np.random.default_rng(1).beta(0.5, 0.5, 200_000), 1 - drawn)
    swapped = np.array(weights)[np.array(weights) < 1]  # half of the orders leave both images alone
    assert 0.45 < len(swapped) / 4000 < 0.55
    assert np.mean(swapped) == pytest.approx(folded.mean(), abs=0.01)
    assert np.quantile(swapped, 0.25) == pytest.approx(np.quantile(folded, 0.25), abs=0.02)


def test_a_step_of_mix_up_has_the_gradient_of_the_weighted_losses_of_both_labels():
    images, model = make_images(12), make_plain_model()
    recipe = Recipe(batch_size=0, lr=0.1, mix_up=1.0)
    (order,) = batches(12, recipe, numpy_rng(0, "batches"))
    x, y, draws = images.x[order], images.y[order], numpy_rng(0, "mix-up")
    weight, partner = draws.beta(1.0, 1.0), draws.permutation(12)
    weight = max(weight, 1 - weight)
    logits = model(weight * x + (1 - weight) * x[partner])
    loss = weight * F.cross_entropy(logits, y) + (1 - weight) * F.cross_entropy(logits, y[partner])
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(one_step(make_plain_model(), images, recipe), expected, atol=1e-5, rtol=1e-4)
    plain = one_step(make_plain_model(), images, Recipe(batch_size=0, lr=0.1))
    assert (expected - plain).norm() > 0.01 * plain.norm()


def test_a_term_that_a_strategy_adds_to_the_loss_gets_labels_and_no_mixtures():
    seen = []

    class Looking(Step):
        def loss(self, model, logits, y):
            seen.append(y)

    model, images = make_plain_model(), make_images(12)
    fit(model, read_vector(model), images, Recipe(batch_size=4, mix_up=1.0), 0, Looking())
    assert torch.equal(torch.cat(seen).sort().values, images.y.sort().values)


class PerSample(Step, Defence):
    """A defence that computes the gradient of a batch in its own way."""

    def training(self):
        return self

    def backward(self, model, x, y, loss, rng):
        loss(x, y).backward()


def test_mix_up_is_refused_beside_a_defence_that_needs_each_images_own_gradient(engine):
    stack = Stack([*make_defences("mix-up").defences, PerSample()])
    with pytest.raises(BadInput, match=r"no image a gradient of its own.*leave one"):
        Federation(make_model(), make_split(), RECIPE, engine=engine, defences=stack)


@pytest.mark.parametrize(("spec", "words"), [
    ("larger-batches(factor=1)", "factor = 1 is out of range"),
    ("larger-batches(factor=1.5)", "factor = 1.5 is out of range"),
    ("more-local-steps(factor=0)", "factor = 0 is out of range"),
    ("early-stopping(patience=0)", "patience = 0 is out of range"),
    ("early-stopping(images=0)", "images = 0 is out of range"),
    ("mix-up(alpha=0)", "alpha = 0 is out of range"),
    ("label-smoothing(amount=1)", "amount = 1 is out of range"),
    ("weight-decay(amount=0)", "amount = 0 is out of range"),
    ("weight-decay(amount='x')", "amount = 'x' is out of range"),
    ("secure-aggregation(bits=40)", "bits = 40 is out of range"),
    ("secure-aggregation(threshold=0.5)", "threshold = 0.5 is out of range"),
    ("secure-aggregation(clip=0)", "clip = 0 is out of range"),
    ("secure-aggregation(neighbours=3)", "neighbours = 3 is out of range"),
    ("secure-aggregation+secure-aggregation(bits=8)", "more than one defence chooses the channel"),
    ("early-stopping+early-stopping(patience=5)", "more than one defence ends the training early"),
    ("mix-up+mix-up(alpha=0.5)", "images are mixed already"),
    ("label-smoothing+label-smoothing", "labels are smoothed already"),
])  # fmt: skip
def test_wrong_options_and_compositions_are_refused_in_one_line(spec, words, engine):
    with pytest.raises(BadInput, match=words) as refusal:
        federation(engine, spec)
    assert "\n" not in str(refusal.value)


class Scripted:
    """Stands in for what tests the model on held-out images."""

    def __init__(self, accuracies):
        self._left = iter(accuracies)

    def accuracy(self, vector):
        return next(self._left)


@pytest.mark.parametrize(("patience", "accuracies", "rounds"), [
    (1, [0.5, 0.6, 0.6, 0.9], 3),
    (2, [0.5, 0.6, 0.6, 0.7, 0.7, 0.7], 6),
    (2, [0.5, 0.4, 0.3, 0.9], 3),
    (3, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], 8),
])  # fmt: skip
def test_training_stops_when_patience_is_at_its_end(patience, accuracies, rounds, engine):
    trained = federation(engine, f"early-stopping(patience={patience})", model=make_plain_model())
    trained._held_out = Scripted(accuracies)
    history = trained.run(read_vector(make_plain_model()), Plan(rounds=8, patience=patience))
    assert [row.acc_held_out for row in history.rounds] == accuracies[:rounds]


def test_early_stopping_looks_at_auxiliary_images_alone(engine, monkeypatch):
    split, looked_at = make_split((30, 20, 10)), []
    evaluator = "glasshouse.federation.federation.Evaluator"
    monkeypatch.setattr(evaluator, lambda model, pool, positions, engine: looked_at.append(positions))
    federation(engine, "early-stopping(images=25)", split=split)
    test, held_out = looked_at
    assert set(test) == set(split.test)
    assert len(set(held_out)) == 25
    assert set(held_out) <= set(split.auxiliary)
    federation(engine, "early-stopping(images=1000)", split=split)
    assert set(looked_at[-1]) == set(split.auxiliary)


def test_early_stopping_without_auxiliary_images_is_refused(engine):
    split = dataclasses.replace(make_split(), auxiliary=np.empty(0, dtype=np.int64))
    with pytest.raises(BadInput, match=r"there are none; set data\.auxiliary above 0"):
        federation(engine, "early-stopping", split=split).run(
            read_vector(make_model()), Plan(rounds=2, patience=1)
        )


def test_a_resumed_training_stops_where_it_would_have(engine, tmp_path):
    start, plan = read_vector(make_model()), Plan(rounds=12, patience=1)
    spec = "early-stopping(patience=1)"
    whole = federation(engine, spec).run(start, plan, record=Record(tmp_path / "whole"))
    assert 1 < len(whole.rounds) < 12
    part = dataclasses.replace(plan, rounds=2)
    federation(engine, spec).run(start, part, record=Record(tmp_path / "part"))
    resumed = federation(engine, spec).run(start, plan, record=Record(tmp_path / "part"))
    assert resumed.rounds == whole.rounds
    assert torch.equal(resumed.vector, whole.vector)


@pytest.mark.parametrize(
    "spec", [*TRAINED, "secure-aggregation+clipping(norm=1.0)", "early-stopping(patience=1)"]
)
def test_workers_do_not_change_what_is_trained(spec, engine):
    plan = Plan(rounds=2, patience=1 if "early" in spec else None)
    with Engine(2) as two:
        runs = [federation(one, spec).run(read_vector(make_model()), plan) for one in (engine, two)]
    assert torch.equal(runs[0].vector, runs[1].vector)
    assert runs[0].rounds == runs[1].rounds


def test_defences_of_training_work_with_all_others(engine):
    others = ("early-stopping", "secure-aggregation", "pruning(fraction=0.5)", "vet")
    computing = ("adversarial-training(eps=0.05,steps=1)", "differential-privacy(clients=3)")
    spec = "+".join([*TRAINED, *others, *computing])
    model = make_plain_model()
    history = federation(engine, spec, model=model).run(read_vector(model), Plan(rounds=2, patience=1))
    assert torch.isfinite(history.vector).all()


def test_strategies_train_by_the_defended_recipe_too(engine):
    history = federation(engine, "mix-up+label-smoothing+weight-decay", strategy=SCAFFOLD()).run(
        read_vector(make_model()), Plan(rounds=2)
    )
    assert torch.isfinite(history.vector).all()


def test_shadows_are_trained_under_the_defended_recipe_and_in_the_clear(engine):
    pool, sets = make_images(36), [ShadowSet(np.arange(24), np.arange(24, 36))]

    def answers(**changed):
        training = Training(recipe=RECIPE, rounds=2, clients=3, **changed)
        return train_shadows(make_model(), lambda seed: read_vector(make_model()), training, pool, sets,
                             engine=engine).logits  # fmt: skip

    smoothed = answers(defences="label-smoothing(amount=0.2)")
    assert not np.array_equal(smoothed, answers())
    assert np.array_equal(smoothed, answers(defences="label-smoothing(amount=0.2)+secure-aggregation"))
    assert np.array_equal(smoothed, answers(defences="label-smoothing(amount=0.2)+early-stopping"))
    more = Training(recipe=RECIPE, rounds=2, defences="more-local-steps(factor=3)")
    assert more.described() == "in one place for 2 x 6 epochs under more-local-steps(factor=3)"
