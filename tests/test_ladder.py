"""The ladder of realism: updates that are harder to invert from rung to rung, made by the clients' code."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES, make_images, make_model, make_plain_model
from torch import nn

from glasshouse import Dataset
from glasshouse.auditing.adapting import adaptive_forms
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.ladder import choose_victims, climb, make_case, make_rungs
from glasshouse.auditing.setting import make_setting
from glasshouse.auditing.target import Variant, train_target
from glasshouse.learning.layout import write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder

DEFENCES = ["gaussian-noise(std=0.05)", "clipping(norm=1.0)+pruning(fraction=0.9)"]
VALUES = {
    "data": {"name": "stripes", "clients": 3, "members": 60, "nonmembers": 20, "auxiliary": 60, "test": 20},
    "training": {"rounds": 2, "epochs": 2, "batch_size": 10, "lr": 0.1, "momentum": 0.5, "local_test": 0},
    "audit": {"attacks": [], "defences": DEFENCES, "central": False, "seconds": 0.5},
}


class Trained:
    """An experiment and its trained target, in a folder."""

    def __init__(self, path, engine, network, **training):
        setting = make_setting(VALUES | {"training": VALUES["training"] | training})
        self.experiment = prepare(setting, Dataset("stripes", make_images(160)), network)
        self.folder, self.engine = RunFolder(path, self.experiment.config()), engine
        with Progress(quiet=True) as progress:
            variant = Variant("fedavg", "none")
            self.target = train_target(self.experiment, self.folder, engine, progress, variant)

    def rungs(self):
        recipe = self.target.case.protocol.recipe
        return {rung.cell: rung for rung in make_rungs(recipe, self.experiment.model, DEFENCES)}

    def case(self, cell):
        victims = choose_victims(self.experiment, seconds=60)
        return make_case(self.experiment, self.target, self.rungs()[cell], victims, self.engine)

    def climb(self):
        with Progress(quiet=True) as progress:
            return climb(self.experiment, self.target, self.folder, self.engine, progress)


@pytest.fixture
def plain(tmp_path, engine):
    return Trained(tmp_path / "run", engine, make_plain_model())


@pytest.fixture
def mixed(tmp_path, engine):
    return Trained(tmp_path / "run", engine, make_model())


def mean_gradient(network, vector, images, mode):
    """The gradient of the mean loss, by torch alone."""
    write_vector(network, vector)
    network.train(mode)
    network.zero_grad()
    F.cross_entropy(network(images.x), images.y).backward()
    return torch.cat([parameter.grad.flatten() for parameter in network.parameters()])


def names(network):
    return [rung.cell for rung in make_rungs(Recipe(), network, ["pruning(fraction=0.9)", "none"])]


def test_the_rungs_lead_from_the_upper_bound_to_each_defence():
    assert names(make_model()) == [
        "ladder/upper-bound",
        "ladder/labels-unknown",
        "ladder/train-mode",
        "ladder/batch",
        "ladder/local-steps",
        "ladder/defended/pruning(fraction=0.9)",
    ]


def test_training_mode_is_a_rung_only_where_it_changes_the_network():
    assert "ladder/train-mode" not in names(make_plain_model())
    assert "ladder/train-mode" not in names(nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(64, 4)))
    dropping = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 4))
    rungs = {rung.name: rung for rung in make_rungs(Recipe(), dropping)}
    assert rungs["train-mode"].group == 1
    assert "dropout with masks unknown" in rungs["train-mode"].words
    assert "batch norm" not in rungs["train-mode"].words
    rungs = {rung.name: rung for rung in make_rungs(Recipe(), make_model())}
    assert rungs["train-mode"].group == 2
    assert "two images" in rungs["train-mode"].words
    assert "batch norm by the batch" in rungs["train-mode"].words


def test_only_the_first_rung_is_given_labels_and_it_is_called_an_upper_bound():
    first, *others = make_rungs(Recipe(), make_model(), DEFENCES)
    assert first.labels_given
    assert "an upper bound" in first.words
    assert not any(rung.labels_given or "upper bound" in rung.words for rung in others)


@pytest.mark.parametrize("recipe", [
    Recipe(epochs=3, batch_size=10, momentum=0.9),
    Recipe(epochs=1, batch_size=1),
    Recipe(epochs=1, batch_size=0),
])  # fmt: skip
def test_the_rung_of_local_steps_takes_several_and_keeps_the_clients_recipe(recipe):
    rung = next(rung for rung in make_rungs(recipe, make_plain_model()) if rung.name == "local-steps")
    assert rung.recipe.total_steps(rung.group) > 1
    assert rung.recipe == dataclasses.replace(recipe, batch_size=rung.recipe.batch_size)


def test_the_upper_bound_is_one_image_and_one_plain_step_in_eval_mode(mixed):
    case = mixed.case("ladder/upper-bound")
    assert set(case.sizes) == {1}
    for observed in case.rounds:
        for update in observed.delivery.updates:
            images = case.truth.held_by([update.client])
            gradient = mean_gradient(mixed.experiment.model, observed.sent, images, mode=False)
            moved = update.delta[: len(gradient)]
            assert torch.allclose(moved, -0.1 * gradient, atol=1e-6)
            assert not update.delta[len(gradient) :].any()  # batch norm's statistics stay


def test_in_train_mode_batch_norm_goes_by_the_batch_and_its_statistics_travel(mixed):
    case = mixed.case("ladder/train-mode")
    assert set(case.sizes) == {2}
    trainable = case.protocol.layout.trainable
    assert all(update.delta[trainable:].any() for seen in case.rounds for update in seen.delivery.updates)


def test_half_of_the_victims_meet_the_first_model_and_half_the_last(plain):
    case = plain.case("ladder/labels-unknown")
    first, last = case.rounds
    assert torch.equal(first.sent, plain.experiment.start)
    assert torch.equal(last.sent, plain.target.case.clients.current)
    assert not set(first.delivery.clients) & set(last.delivery.clients)
    assert len(first.delivery.clients) == len(last.delivery.clients) == 4
    assert len(case.truth.pool) == 8


def test_every_rung_has_the_same_victims_all_of_them_members(plain):
    pools = [plain.case(cell).truth.pool.x for cell in plain.rungs()]
    assert all(torch.equal(pool, pools[0]) for pool in pools)
    members = plain.experiment.split.images("members").x
    assert all(any(torch.equal(victim, member) for member in members) for victim in pools[0])


def test_defences_act_on_the_update_as_clients_apply_them(plain):
    defended = plain.case(f"ladder/defended/{DEFENCES[1]}").rounds[0].delivery.updates
    for update in defended:
        assert (update.delta != 0).float().mean() < 0.12  # every tensor keeps a tenth, rounded up
        assert update.delta.norm() <= 1 + 1e-5


def test_every_rung_is_found_out_about_under_its_own_name(plain):
    findings = plain.climb()
    assert list(dict.fromkeys(finding.cell for finding in findings)) == list(plain.rungs())
    assert {finding.family for finding in findings} == {"ladder"}
    assert {finding.adversary for finding in findings} == {"curious server"}
    psnr = {finding.cell: finding for finding in findings if finding.metric == "psnr"}
    assert set(psnr) == set(plain.rungs())
    for cell, rung in plain.rungs().items():
        assert psnr[cell].note.startswith(rung.words)
        assert psnr[cell].defence == rung.defence
        assert psnr[cell].chance is not None
    assert "how many images of each class each client holds" in psnr["ladder/upper-bound"].assumes
    informed = {finding.cell for finding in findings if "adaptive=True" in finding.attack}
    assert informed == {cell for cell, rung in plain.rungs().items() if adaptive_forms(["dlg"], rung.defence)}
    given = {finding.cell for finding in findings if finding.assumes and finding.cell not in informed}
    assert given == {"ladder/upper-bound"}


def test_a_ladder_that_was_climbed_is_not_climbed_again(plain, monkeypatch):
    first = plain.climb()
    monkeypatch.setattr("glasshouse.auditing.ladder.examine", lambda *_, **__: pytest.fail("climbed again"))
    assert plain.climb() == first


def test_behind_a_secure_sum_there_is_no_ladder(tmp_path, engine):
    (finding,) = Trained(tmp_path / "run", engine, make_plain_model(), channel="secure").climb()
    assert finding.value is None
    assert "no single update reaches the server" in finding.reason


def test_clients_whose_optimiser_rescales_leave_null_findings_with_the_reason(tmp_path, engine):
    adam = {"optimiser": "adam", "lr": 0.001, "momentum": 0.0}
    findings = Trained(tmp_path / "run", engine, make_plain_model(), **adam).climb()
    steps = [finding for finding in findings if finding.cell == "ladder/local-steps"]
    assert [finding.value for finding in steps] == [None]
    assert "adam" in steps[0].reason
    assert any(finding.value for finding in findings if finding.cell == "ladder/batch")


@pytest.mark.parametrize("network", [
    make_model(),
    nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES)),
])  # fmt: skip
def test_a_network_with_batch_norm_or_dropout_climbs_every_rung(tmp_path, engine, network):
    trained = Trained(tmp_path / "run", engine, network)
    scored = {finding.cell for finding in trained.climb() if finding.metric == "psnr"}
    assert scored == set(trained.rungs())
