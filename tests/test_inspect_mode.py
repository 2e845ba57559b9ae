"""Updates of clients that train in train mode or in eval mode, as `glasshouse inspect` reads them."""

import pytest
import torch
from recorded_updates import CLASSES, SHAPE, batch, normed, perceptron, record
from safetensors.torch import load_file, save_file

from glasshouse import inspect_update
from glasshouse.attacks.inversion.explaining import Explanation
from glasshouse.auditing.inspecting.case import make_case
from glasshouse.auditing.inspecting.reading import Told
from glasshouse.auditing.inspecting.tries import attacked
from glasshouse.models.files import read_named

IMAGES = batch([0, 1, 2])


def recorded(folder, mode, kind, network=None):
    """An update of a client whose batch norm has seen other images before."""
    network = normed() if network is None else network
    with torch.no_grad():
        for seed in range(5):
            network.train()(batch([0] * 16, seed)[0])
    return record(folder, network.train(mode == "train"), *IMAGES, kind)


def read(files, network, **told):
    before, update = files
    known = Told(samples=3, lr=0.1, **told)
    return make_case(update, before, network, SHAPE, CLASSES, known, parts={}, seed=0)


def mismatch(case):
    x, labels = IMAGES
    return Explanation(attacked(case), labels, len(x)).mismatch(x, labels)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_statistics_in_the_file_tell_the_mode(tmp_path, mode):
    inspected = read(recorded(tmp_path, mode, "after"), normed())
    assert inspected.case.protocol.recipe.mode == mode
    assert f"The client trained in {mode} mode" in " ".join(inspected.reading.words)
    assert mismatch(inspected.case) < 1e-4


def test_rounded_statistics_are_those_before(tmp_path):
    before, update = recorded(tmp_path, "eval", "after")
    save_file({name: tensor.half() if tensor.is_floating_point() else tensor
               for name, tensor in load_file(update).items()}, update)  # fmt: skip
    assert read((before, update), normed()).case.protocol.recipe.mode == "eval"


@pytest.mark.parametrize("kind", ["gradient", "after"])
def test_where_nothing_tells_train_mode_is_assumed_and_the_user_may_say_otherwise(tmp_path, kind):
    before, update = recorded(tmp_path, "eval", kind)
    parameters = {name for name, _ in normed().named_parameters()}
    save_file({name: read_named(update)[name] for name in parameters}, update)
    assumed, said = read((before, update), normed()), read((before, update), normed(), mode="eval")
    assert "read as trained in train mode, which nothing tells" in " ".join(assumed.reading.words)
    assert "You say that the client trained in eval mode." in said.reading.words
    assert mismatch(assumed.case) > 0.01
    assert mismatch(said.case) < 1e-4


def test_without_batch_norm_and_dropout_nothing_is_said_of_the_mode(tmp_path):
    inspected = read(recorded(tmp_path, "train", "gradient", perceptron()), perceptron())
    assert " mode" not in " ".join(inspected.reading.words)


def test_the_statement_names_the_mode(tmp_path):
    before, update = recorded(tmp_path, "eval", "gradient")
    told = {"shape": SHAPE, "classes": CLASSES, "seconds": 0.2, "workers": 1, "quiet": True}
    seen = inspect_update(update, before, normed(), mode="eval", out=tmp_path / "run", **told)
    assert "You say that the client trained in eval mode." in seen.statement.found
    assert 'mode = "eval"' in (tmp_path / "run" / "config.toml").read_text()
