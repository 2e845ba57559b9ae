from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from glasshouse.auditing.experiment import prepare
from glasshouse.data.dataset import Dataset
from glasshouse.data.holdout import SHARES_OF_ALL, part_sizes
from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import accuracy
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.seeds import derive
from glasshouse.models import build
from glasshouse.models.foreign import OURS, TIMM, TORCHVISION
from glasshouse.models.loading import seeded_model
from glasshouse.progress import Progress
from glasshouse.studies.mia_bad import grid, training
from glasshouse.studies.mia_bad.cells import TableCell
from glasshouse.studies.mia_bad.grid import MIABadStudy
from glasshouse.studies.mia_bad.pretrained import FACTORY, FILES, PRETRAINED
from glasshouse.studies.mia_bad.training import Targets
from glasshouse.studies.study import Workplace

ROW = grid.GridRow(
    TableCell("table-1", "digits", "mlp"), grid._sizes(80, 80, 80, 60, shadows=2, rounds=6, epochs=2)
)


@pytest.fixture
def place(tmp_path):
    with Engine(1) as engine:
        yield Workplace(engine, 3, tmp_path / "cell", tmp_path / "shared", Progress(quiet=True))


def by_hand(rounds, *, restarts=False):
    """The central state after some rounds' worth of epochs, with one optimiser or one for each round."""
    setting = ROW.setting(1).model_copy(update={"seed": 3})
    experiment = prepare(setting)
    held, recipe, state = experiment.split.images("members"), setting.training.recipe(), experiment.start
    trainings = [2] * rounds if restarts else [2 * rounds]
    for epochs in trainings:
        network = laid_out(seeded_model("mlp", held.shape, held.classes, 0))
        state = fit(network, state, held, replace(recipe, epochs=epochs), derive(3, "central"))
    return experiment, state


def test_the_central_target_is_one_training_over_all_rounds(place):
    target = Targets().trained(ROW.setting(1), place)
    _, once = by_hand(6)
    _, again = by_hand(6, restarts=True)
    assert torch.equal(read_vector(target.case.model), once)
    assert not torch.allclose(once, again, atol=1e-3)
    assert target.case.subject.strategy == target.mode == "central"


def test_the_states_on_the_way_are_those_of_shorter_trainings(place):
    states = [read_vector(target.case.model) for target in training.stopped(ROW.setting(5), place)]
    assert len(states) == 6
    for rounds in (1, 4, 6):
        assert torch.equal(states[rounds - 1], by_hand(rounds)[1])


def test_a_central_training_is_not_done_twice(place, monkeypatch):
    Targets().trained(ROW.setting(1), place)
    monkeypatch.setattr(training, "fit", lambda *_: pytest.fail("trained again"))
    assert len(list(training.stopped(ROW.setting(5), place))) == 6


def test_all_targets_have_the_same_shadow_models_trained_in_one_place(place):
    targets = Targets()
    central, federated = (targets.trained(ROW.setting(clients), place) for clients in (1, 5))
    shadows = [target.case.shadows("shadows") for target in (central, federated)]
    assert "in one place for 1 x 12 epochs" in shadows[0].described
    assert (shadows[0].candidates.logits == shadows[1].candidates.logits).all()
    assert len(list((place.shared / "shadows").glob("*.safetensors"))) == 2
    assert federated.case.subject.strategy == "fedavg"
    assert federated.mode == "5-clients"


def test_a_matched_central_model_is_the_one_whose_fit_is_closest(place):
    targets = Targets()
    wanted = targets.trained(ROW.setting(5), place).train_accuracy
    matched = targets.matched(ROW.setting(5), place)
    central, fits = [], []
    for rounds in range(1, 7):
        experiment, state = by_hand(rounds)
        model = experiment.model
        write_vector(model, state)
        central.append(state)
        fits.append(accuracy(model, experiment.split.images("members")))
        if fits[-1] >= wanted:
            break
    distances = [abs(fit - wanted) for fit in fits]
    chosen = [torch.equal(read_vector(matched.case.model), state) for state in central].index(True)
    assert 0 < wanted < 1
    assert matched.train_accuracy == pytest.approx(fits[chosen])
    assert distances[chosen] == min(distances)
    assert matched.mode == "central"


@pytest.mark.parametrize(("fits", "wanted", "chosen", "looked_at"), [
    ([0.3, 0.58, 0.9, 1.0], 0.6, 0.58, 3),
    ([0.3, 0.5, 0.62, 1.0], 0.6, 0.62, 3),
    ([0.7, 0.8, 0.9, 1.0], 0.6, 0.7, 1),
    ([0.3, 0.4, 0.35, 0.3], 0.6, 0.4, 4),
])  # fmt: skip
def test_a_central_model_is_stopped_at_the_fit_that_is_wanted(monkeypatch, fits, wanted, chosen, looked_at):
    asked = []

    def stopped(setting, place):
        for share in fits:
            asked.append(share)
            yield SimpleNamespace(train_accuracy=share)

    monkeypatch.setattr(training, "stopped", stopped)
    monkeypatch.setattr(Targets, "trained", lambda *_: SimpleNamespace(train_accuracy=wanted))
    assert Targets().matched(None, None).train_accuracy == chosen
    assert asked == fits[:looked_at]


def test_parts_are_drawn_from_training_and_test_images_together(monkeypatch):
    digits = load("digits")
    cut = Dataset("digits", digits.train[:1000], digits.train[1000:])
    monkeypatch.setattr(training, "load", lambda name: cut)
    split = training._prepared(ROW.setting(2), SimpleNamespace(seed=3), 2).split
    assert len(split.members) == 80
    assert (split.members >= 1000).any()
    assert (split.test < 1000).any()


def test_the_papers_scale_has_as_many_members_as_the_paper_and_leaves_no_image_out():
    for row in grid.rows("paper"):
        data = row.sizes.data
        grey = row.row.data in ("mnist", "fashion-mnist")
        asked = {name: getattr(data, name) for name in SHARES_OF_ALL}
        assert data.members == (60000 if grey else 50000)
        assert sum(part_sizes(70000 if grey else 60000, SHARES_OF_ALL, asked, row.row.data).values()) == (
            70000 if grey else 60000
        )


def test_lenet_is_trained_for_a_hundred_epochs_with_four_seeds_on_a_laptop(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path))
    assert {(row.row.data, row.row.model) for row in grid.rows("laptop")} == {
        (data, "lenet") for data in ("cifar10", "mnist", "fashion-mnist", "cifar100")
    }
    for row in grid.rows("laptop"):
        assert training.in_one_place(row.setting(1)).training.epochs == 100
    assert MIABadStudy().seeds("laptop") == 4
    assert MIABadStudy().seeds("smoke") == 1


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """A function that writes made-up ImageNet weights by a library's names, and returns them by ours."""
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path))

    def write(library, name=FILES[0]):
        torch.manual_seed(1)
        state = build("efficientnet-b0", (3, 32, 32), 1000).state_dict()
        theirs = dict(zip(OURS.layers(), library.layers(), strict=True))
        saved = {
            f"{theirs[layer]}.{kind}": tensor
            for (layer, _, kind), tensor in ((name.rpartition("."), tensor) for name, tensor in state.items())
        }
        file = tmp_path / name
        file.parent.mkdir()
        save_file(saved, file) if file.suffix == ".safetensors" else torch.save(saved, file)
        return state

    return write


@pytest.mark.parametrize(("library", "name"), [(TORCHVISION, FILES[0]), (TIMM, FILES[1])])
def test_efficientnet_starts_from_imagenet_weights_with_a_new_last_layer(imagenet, library, name):
    weights = imagenet(library, name)
    first, second = (seeded_model(FACTORY, (3, 32, 32), 10, seed).state_dict() for seed in (1, 2))
    body = [name for name in weights if not name.startswith("24.")]
    assert len(body) == len(weights) - 2
    assert all(torch.equal(first[name], weights[name]) for name in body)
    assert first["24.weight"].shape == (10, 1280)
    assert not torch.equal(first["24.weight"], second["24.weight"])


def test_grey_images_pass_the_first_layer_as_if_given_in_three_colours(imagenet):
    weights = imagenet(TORCHVISION)
    stem = seeded_model(FACTORY, (1, 28, 28), 10, 0)[0]
    grey = torch.rand(2, 1, 28, 28)
    expected = torch.nn.functional.conv2d(grey.expand(2, 3, 28, 28), weights["0.weight"], stride=2, padding=1)
    torch.testing.assert_close(stem(grey), expected)


def test_without_imagenet_weights_laptop_has_no_efficientnet_and_the_factory_says_where_they_belong(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path))
    assert {row.row.model for row in grid.rows("laptop")} == {"lenet"}
    assert {row.row.model for row in grid.rows("paper")} == {"efficientnet-b0"}
    with pytest.raises(BadInput, match=r"weights/efficientnet-b0\.safetensors"):
        seeded_model(FACTORY, (3, 32, 32), 10, 0)


def test_with_imagenet_weights_the_rows_of_efficientnet_start_from_them(imagenet):
    imagenet(TORCHVISION)
    *lenets, deep = grid.rows("laptop")
    assert {row.row.model for row in lenets} == {"lenet"}
    assert (deep.row.data, deep.row.model) == ("cifar10", PRETRAINED)
    assert {row.row.model for row in grid.rows("paper")} == {PRETRAINED}
    assert deep.setting(2).model.name == FACTORY


def test_a_target_and_its_shadows_from_imagenet_weights_have_last_layers_of_their_own(imagenet, place):
    weights = imagenet(TORCHVISION)
    sizes = grid._sizes(20, 20, 24, 20, shadows=2, rounds=1, epochs=1)
    row = grid.GridRow(TableCell("table-1", "digits", PRETRAINED), sizes)
    experiment = training._prepared(row.setting(2), place, 2)
    assert torch.equal(experiment.model.state_dict()["20.weight"], weights["20.weight"])
    assert not torch.equal(experiment.fresh(5), experiment.start)
    target = Targets().trained(row.setting(2), place)
    assert target.case.subject.model == FACTORY
    assert "first weights" not in target.case.shadows("shadows").described
