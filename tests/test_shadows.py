import dataclasses
import itertools

import numpy as np
import pytest
import torch
from conftest import CLASSES, make_images, make_model

from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import make_setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.data.dataset import Dataset
from glasshouse.data.partitions import partition
from glasshouse.data.split import Split
from glasshouse.errors import CannotRun
from glasshouse.federation import shadows
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.shadows import ShadowSet, Training, online_sets, shadow_sets, train_shadows
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive
from glasshouse.progress import Progress
from glasshouse.store import read_tensors


class Distilling(FedAvg):
    """A strategy whose server has images of its own."""

    needs_images = True


MASTER = np.arange(100, 220)
RECIPE = Recipe(epochs=1, batch_size=8, lr=0.1)
FEDERATED = Training(recipe=RECIPE, rounds=2, clients=3, fraction=0.67, partition="dirichlet(alpha=1.0)")
SETS = [ShadowSet(np.arange(24), np.arange(24, 36)), ShadowSet(np.arange(12, 36), np.arange(12))]


def first_weights(seed):
    """A start that depends on the seed."""
    return read_vector(make_model(seed % 2**32))


@pytest.fixture
def trained(monkeypatch):
    """The seeds of the shadows that are really trained, in order."""
    seeds, train = [], shadows._train

    def counted(job):
        seeds.append(job.seed)
        return train(job)

    monkeypatch.setattr(shadows, "_train", counted)
    return seeds


@pytest.fixture
def ask(engine, tmp_path):
    """Shadows on 36 images with a cache, with parts exchanged at will."""

    def asked(*, training=FEDERATED, pool=None, sets=SETS, seed=0, cache=tmp_path / "cache"):
        images = make_images(36) if pool is None else pool
        return train_shadows(
            make_model(), first_weights, training, images, sets, engine=engine, seed=seed, cache=cache
        )

    return asked


def test_shadow_sets_overlap_but_differ_and_keep_training_and_test_apart():
    sets = shadow_sets(MASTER, 1000, 6, np.random.default_rng(0))
    assert len(sets) == 6
    for chosen in sets:
        assert len(np.unique(np.concatenate([chosen.train, chosen.test]))) == 108
        assert len(chosen.train) + len(chosen.test) == 108
        assert np.isin(chosen.train, MASTER).all()
        assert np.isin(chosen.test, MASTER).all()
        assert len(chosen.train) == 72
    for first, second in itertools.combinations(sets, 2):
        shared = len(np.intersect1d(first.train, second.train))
        assert 0 < shared < len(first.train)


def test_a_shadow_is_trained_on_no_more_than_the_target_was():
    for chosen in shadow_sets(MASTER, 17, 3, np.random.default_rng(0)):
        assert len(chosen.train) == 17
        assert len(chosen.test) == 108 - 17


@pytest.mark.parametrize("candidates", [40, 41])
def test_each_candidate_is_in_exactly_half_of_an_even_number_of_online_shadows(candidates):
    positions = np.arange(7, 7 + candidates)
    sets = online_sets(positions, 6, np.random.default_rng(0))
    counts = np.bincount(np.concatenate([chosen.train for chosen in sets]), minlength=7 + candidates)
    assert len(sets) == 6
    assert (counts[positions] == 3).all()
    assert counts.sum() == 3 * candidates
    for chosen in sets:
        assert sorted([*chosen.train, *chosen.test]) == positions.tolist()
    assert len({tuple(chosen.train) for chosen in sets}) == 6


def test_the_answers_do_not_depend_on_the_number_of_workers():
    runs = []
    for workers in (1, 2):
        with Engine(workers) as engine:
            runs.append(
                train_shadows(make_model(), first_weights, FEDERATED, make_images(36), SETS, engine=engine)
            )
    first, second = runs
    np.testing.assert_array_equal(first.logits, second.logits)
    assert first.logits.shape == (2, 36, CLASSES)
    assert (first.inside == second.inside).all()


def test_answers_say_which_images_each_shadow_was_trained_and_tested_on(ask):
    answers = ask()
    for k, chosen in enumerate(SETS):
        assert np.flatnonzero(answers.inside[k]).tolist() == chosen.train.tolist()
        assert np.flatnonzero(answers.tested[k]).tolist() == chosen.test.tolist()
    part = answers.about(slice(30, None))
    assert (part.logits == answers.logits[:, 30:]).all()
    assert (part.inside == answers.inside[:, 30:]).all()
    assert torch.equal(part.images.x, answers.images.x[30:])
    sums = np.exp(answers.log_probabilities(1)).sum(1)
    np.testing.assert_allclose(sums, 1.0, rtol=1e-12)


def test_a_federated_shadow_is_a_federation_run_by_hand(ask, engine):
    answers, pool = ask(seed=5), make_images(36)
    for k, chosen in enumerate(SETS):
        seed = derive(5, "shadow", k)
        parts = partition("dirichlet(alpha=1.0)", pool.y.numpy()[chosen.train], 3, derive(seed, "clients"))
        nothing = np.empty(0, dtype=np.int64)
        split = Split(pool, tuple(chosen.train[part] for part in parts), nothing, nothing, nothing)
        model = make_model()
        federation = Federation(model, split, RECIPE, engine=engine, seed=seed)
        history = federation.run(first_weights(seed), Plan(rounds=2, fraction=0.67))
        write_vector(model, history.vector)
        np.testing.assert_allclose(answers.logits[k], predict(model, pool.x).numpy(), rtol=1e-4, atol=1e-5)


def test_a_second_call_trains_nothing_and_gives_the_same_answers(ask, trained):
    first = ask()
    assert len(trained) == 2
    second = ask()
    assert len(trained) == 2
    np.testing.assert_array_equal(first.logits, second.logits)


def test_without_a_cache_every_call_trains(ask, trained):
    ask(cache=None)
    ask(cache=None)
    assert len(trained) == 4


@pytest.mark.parametrize("change", [
    {"training": dataclasses.replace(FEDERATED, recipe=dataclasses.replace(RECIPE, lr=0.2))},
    {"training": dataclasses.replace(FEDERATED, rounds=1)},
    {"training": dataclasses.replace(FEDERATED, defences="clipping(norm=1.0)")},
    {"seed": 1},
    {"pool": make_images(36, seed=1)},
    {"pool": dataclasses.replace(make_images(36), y=make_images(36).y.flip(0))},
    {"sets": [ShadowSet(chosen.train[1:], chosen.test) for chosen in SETS]},
], ids=["recipe", "rounds", "defence", "seed", "images", "labels", "sets"])  # fmt: skip
def test_a_change_of_anything_that_decides_the_answers_trains_anew(ask, trained, change):
    ask()
    ask(**change)
    assert len(trained) == 4


def test_a_set_that_is_added_later_is_the_only_one_trained(ask, trained):
    ask(sets=SETS[:1])
    ask(sets=SETS)
    assert trained == [derive(0, "shadow", 0), derive(0, "shadow", 1)]


def test_a_call_that_was_cut_short_goes_on_where_it_stopped(ask, trained, monkeypatch, tmp_path):
    whole = ask(cache=None)
    trained.clear()
    train = shadows._train

    def stopped(job):
        if trained:
            raise KeyboardInterrupt
        return train(job)

    with monkeypatch.context() as cut:
        cut.setattr(shadows, "_train", stopped)
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 1
    resumed = ask()
    assert trained == [derive(0, "shadow", 0), derive(0, "shadow", 1)]
    np.testing.assert_array_equal(resumed.logits, whole.logits)


def test_only_answers_are_kept(ask, tmp_path):
    answers = ask()
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert len(files) == 2
    for file in files:
        tensors, notes = read_tensors(file)
        assert tensors.keys() == {"logits"}
        assert tensors["logits"].shape == (36, CLASSES)
        assert not notes
    assert {field.name for field in dataclasses.fields(answers)} == {"images", "logits", "inside", "tested"}


def shadowing_of(tmp_path, engine, strategy="fedavg", **audit):
    """Shadow models for an audit of 3 clients on striped images, and its experiment."""
    setting = make_setting({
        "data": {"clients": 3, "members": 30, "nonmembers": 30, "auxiliary": 40, "test": 20},
        "training": {"rounds": 1, "batch_size": 10, "strategy": strategy},
        "audit": {"shadows": 4, **audit},
    })  # fmt: skip
    images = make_images(120)
    experiment = prepare(setting, Dataset("stripes", images), make_model())
    return Shadowing(experiment, tmp_path / "shadows", engine, Progress(quiet=True)), experiment


def names(images):
    """Each image as bytes, by which it is known."""
    return [pixels.numpy().tobytes() for pixels in images.x]


def test_offline_shadows_never_see_a_candidate(tmp_path, engine):
    shadowing, experiment = shadowing_of(tmp_path, engine)
    shadows = shadowing.offline("none")
    candidates = experiment.truth.candidates
    assert names(shadows.candidates.images) == names(candidates)
    assert not set(names(shadows.auxiliary.images)) & set(names(candidates))
    assert not shadows.candidates.inside.any()
    assert not shadows.candidates.tested.any()
    seen = set(itertools.chain(*(names(shadows.auxiliary.images[used]) for used in shadows.auxiliary.inside)))
    auxiliary = set(names(experiment.split.images("auxiliary")))
    assert len(seen) > 24
    assert seen <= auxiliary
    assert not seen & set(names(experiment.split.images("test")))


def test_online_shadows_see_half_of_the_candidates_and_no_auxiliary_image(tmp_path, engine):
    shadowing, _ = shadowing_of(tmp_path, engine)
    shadows = shadowing.online("none")
    assert not shadows.auxiliary.inside.any()
    assert (shadows.candidates.inside.sum(0) == 2).all()
    assert (shadows.candidates.inside.sum(1) == 30).all()
    assert "of the records in question themselves" in shadows.described


def test_shadows_of_a_defended_target_are_undefended_unless_they_are_asked_for_as_defended(
    tmp_path, engine, trained
):
    shadowing, _ = shadowing_of(tmp_path, engine, adaptive_shadows=3)
    source = shadowing.under("clipping(norm=0.01)")
    plain = source("shadows")
    assert shadowing.under("none")("defended_shadows") is plain
    assert len(trained) == 4
    defended = source("defended_shadows")
    assert source("defended_shadows") is defended
    assert len(trained) == 4 + 3
    assert len(defended) == 3
    assert not (defended.auxiliary.logits == plain.auxiliary.logits[:3]).any()
    np.testing.assert_array_equal(defended.auxiliary.inside, plain.auxiliary.inside[:3])
    assert defended.described.startswith("3 shadow models")
    assert "under clipping(norm=0.01)" in defended.described
    assert "under" not in plain.described


def test_shadows_are_trained_like_the_target_or_in_one_place(tmp_path, engine):
    federated, _ = shadowing_of(tmp_path / "a", engine)
    central, _ = shadowing_of(tmp_path / "b", engine, shadow_training="central")
    assert "as federations of 3 clients" in federated.offline("none").described
    assert "in one place" in central.offline("none").described


def test_shadows_are_trained_by_the_targets_strategy_and_name_it(tmp_path, engine):
    plain, _ = shadowing_of(tmp_path / "a", engine)
    other, _ = shadowing_of(tmp_path / "b", engine, strategy="fedavgm(server_lr=0.5)")
    ours, theirs = plain.offline("none"), other.offline("none")
    assert "fedavg" not in ours.described
    assert "by fedavgm(server_lr=0.5) for 1 x 1 epochs" in theirs.described
    assert not np.array_equal(ours.auxiliary.logits, theirs.auxiliary.logits)


def test_shadows_do_without_a_server_that_has_images_and_say_so(tmp_path, engine):
    plain, _ = shadowing_of(tmp_path / "a", engine)
    distilled, _ = shadowing_of(tmp_path / "b", engine, strategy="test_shadows:Distilling")
    reason = "as no server has the images that test_shadows:Distilling needs"
    assert f"by fedavg, {reason}" in distilled.offline("none").described
    np.testing.assert_array_equal(
        distilled.offline("none").auxiliary.logits, plain.offline("none").auxiliary.logits
    )
    central, _ = shadowing_of(tmp_path / "c", engine, "test_shadows:Distilling", shadow_training="central")
    assert "fedavg" not in central.offline("none").described


def test_shadows_from_given_weights_say_so(tmp_path, engine):
    shadowing, experiment = shadowing_of(tmp_path, engine)
    assert shadowing.offline("none").described.endswith("from the target's own first weights")
    assert torch.equal(experiment.fresh(3), experiment.start)


def test_shadows_that_cannot_be_trained_say_why(tmp_path, engine):
    shadowing, experiment = shadowing_of(tmp_path, engine, shadows=0)
    with pytest.raises(CannotRun, match="shadows = 0"):
        shadowing.offline("none")
    few = dataclasses.replace(experiment.split, auxiliary=experiment.split.auxiliary[:9])
    poor = Shadowing(dataclasses.replace(experiment, split=few), tmp_path, engine, Progress(quiet=True))
    with pytest.raises(CannotRun, match="9 auxiliary images are too few"):
        poor.offline("none")
