"""Records that are damaged, or made to do harm: one line, exit code 2, nothing run and nothing lost."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest
from conftest import CLASSES, SHAPE, make_split
from recorded_rounds import RECIPE, train_plainly
from safetensors.numpy import load_file, save_file
from test_cli import run

from glasshouse import BadInput, Recorder
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build
from glasshouse.recording.reader import read_recording

CANARY = "canary"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "r"
    network = build("mlp", SHAPE, CLASSES)
    train_plainly(folder, network, make_split(), Recipe(**RECIPE), rounds=3, model="mlp")
    return folder


def federation(**changes):
    """Rewrites `federation.json` with other entries."""

    def damage(folder):
        path = folder / "federation.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def raw(text):
    return lambda folder: (folder / "federation.json").write_text(text)


def told(number=2, **changes):
    """Rewrites the `round.json` of a round."""

    def damage(folder):
        path = folder / "rounds" / f"{number:04d}" / "round.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def client(**changes):
    """Rewrites what a round says of its first client."""
    first = {"name": "0", "samples": 30, "file": "update-0000.safetensors"} | changes
    others = [
        {"name": "1", "samples": 20, "file": "update-0001.safetensors"},
        {"name": "2", "samples": 10, "file": "update-0002.safetensors"},
    ]
    return told(clients=[first, *others])


def tensors(change, file="update-0001.safetensors"):
    """Rewrites the tensors of a file of round 2."""

    def damage(folder):
        path = folder / "rounds" / "0002" / file
        save_file(change(dict(load_file(path))), path)

    return damage


def with_first(value):
    def change(held):
        name = next(iter(held))
        return held | {name: value(held[name].copy())}

    return change


def spoiled(array):
    array.flat[0] = np.nan
    return array


def truncated(folder):
    path = folder / "rounds" / "0002" / "update-0001.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def linked(folder):
    path = folder / "rounds" / "0002" / "update-0001.safetensors"
    shutil.move(path, folder.parent / "elsewhere.safetensors")
    path.symlink_to(folder.parent / "elsewhere.safetensors")


def linked_round(folder):
    shutil.move(folder / "rounds" / "0002", folder.parent / "elsewhere")
    (folder / "rounds" / "0002").symlink_to(folder.parent / "elsewhere")


def piped(folder):
    path = folder / "rounds" / "0002" / "update-0001.safetensors"
    path.unlink()
    os.mkfifo(path)


class Exploit:
    def __reduce__(self):
        return os.mkdir, (CANARY,)


def pickled(folder):
    path = folder / "rounds" / "0002" / "update-0001.safetensors"
    path.write_bytes(pickle.dumps(Exploit()))


def renumbered(folder):
    """The last round becomes one of another number."""
    told(3, round=2_000_000)(folder)
    (folder / "rounds" / "0003").rename(folder / "rounds" / "2000000")
    (folder / "final.safetensors").unlink()


def removed(place):
    def damage(folder):
        path = folder / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


HOSTILE = {
    "no federation.json": (removed("federation.json"), "holds no federation.json"),
    "a missing round": (removed("rounds/0002"), "round 3 follows round 2, which is missing"),
    "the last round missing": (removed("rounds/0003"), "follows round 3, which is missing"),
    "a round without its file": (removed("rounds/0002/update-0001.safetensors"), "is missing"),
    "a round without round.json": (removed("rounds/0002/round.json"), "round.json is missing"),
    "a folder that is no round": (lambda folder: (folder / "rounds" / "2").mkdir(), "is no round"),
    "a truncated tensor": (truncated, "update-0001.safetensors cannot be read"),
    "a pickle posing as weights": (pickled, "update-0001.safetensors cannot be read"),
    "a pickle by its name": (client(file="update-0000.pt"), "plain name of a .safetensors file"),
    "a path above": (client(file="../0001/sent.safetensors"), "plain name"),
    "an absolute path": (client(file="/etc/passwd"), "plain name"),
    "a hidden path": (told(sent=".."), "plain name"),
    "a path with a NUL": (client(file="a\0.safetensors"), "plain name"),
    "a linked file": (linked, "is a link"),
    "a linked round": (linked_round, "is a link"),
    "a pipe": (piped, "is a pipe"),
    "one file for two": (client(file="update-0001.safetensors"), "named twice"),
    "an unknown version": (federation(version=2), "version 2 is unknown"),
    "a version that is true": (federation(version=True), "version True is unknown"),
    "another format": (federation(format="other"), "format is 'other'"),
    "an unknown key": (federation(recipee={}), "did you mean 'recipe'"),
    "a recipe of text": (federation(recipe="sgd"), "recipe = 'sgd'"),
    "a rate of text": (federation(recipe={"lr": "high"}), "recipe.lr = 'high'"),
    "a negative rate": (federation(recipe={"lr": -1}), "recipe.lr = -1"),
    "an augmentation that is code": (federation(recipe={"augment": "os:abort"}), "augment"),
    "a model of a list": (federation(model=[1]), "model = [1]"),
    "a factory to import": (federation(model={"name": "lab:touch", "shape": [1, 8, 8], "classes": 4}), "lab"),
    "a zoo with options that are code": (
        federation(model={"name": "mlp(x=__import__('os'))", "shape": [1, 8, 8], "classes": 4}),
        "mlp(",
    ),
    "a giant model": (
        federation(model={"name": "resnet20(width=10**9)", "shape": [1, 8, 8], "classes": 4}),
        "resnet20",
    ),
    "a foreign model": (federation(model={"name": "lenet", "shape": [1, 28, 28], "classes": 4}), "lack"),
    "a shape that is too large": (federation(model={"name": "mlp", "shape": [1, 2**40, 8]}), "model.shape"),
    "an unknown channel": (federation(channel="carrier pigeon"), "carrier pigeon"),
    "a negative seed": (federation(seed=-1), "seed = -1"),
    "a name of control characters": (federation(strategy="\x1b[2J"), "strategy"),
    "no JSON": (raw("{"), "not valid JSON"),
    "a list": (raw("[]"), "not an object"),
    "NaN": (raw('{"format": "glasshouse-record", "version": 1, "seed": NaN}'), "NaN is no number"),
    "a number beyond all": (raw('{"format": "glasshouse-record", "version": ' + "9" * 5000 + "}"), "JSON"),
    "nested deeply": (raw("[" * 100_000), "nested too deeply"),
    "huge": (raw(" " * 2_000_000), "over the limit"),
    "two clients of one name": (client(name="1"), "listed twice"),
    "negative samples": (client(samples=-30), "samples = -30"),
    "samples of text": (client(samples="30"), "samples = '30'"),
    "samples without end": (client(samples=10**30), "samples"),
    "more samples than there are": (client(samples=2**48), "a whole number from 1 to 1,000,000,000"),
    "more steps than can be looked at": (client(samples=10**9), "make 125,000,000 steps of training"),
    "epochs without end": (federation(recipe={"epochs": 2_000_000}), "they may make at most 1,000,000"),
    "rounds without end": (federation(recipe={"rounds": 2_000_000}), "training.rounds = 2000000"),
    "a batch beyond all": (federation(recipe={"batch_size": 2**30}), "training.batch_size = 1073741824"),
    "a round beyond all": (renumbered, "training.rounds = 2000000"),
    "clients of text": (told(clients="all"), "is no list"),
    "a round of another number": (told(round=7), "round = 7"),
    "a sum of other clients": (
        told(sum={"file": "sent.safetensors", "samples": 1}),
        "sum.samples = 1, but the clients have 60",
    ),
    "nobody's update": (client(file=None), "client '0' has no file"),
    "an update with NaN": (tensors(with_first(spoiled)), "round 2, client '1'"),
    "an update of another shape": (tensors(with_first(lambda array: array[:1])), "round 2, client '1'"),
    "an update that lacks a tensor": (
        tensors(lambda held: dict(list(held.items())[1:])),
        "round 2, client '1'",
    ),
    "a sent model with NaN": (tensors(with_first(spoiled), "sent.safetensors"), "round 2, the model sent"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_record_is_one_line_and_nothing_is_run(name, sound, tmp_path, monkeypatch, capsys):
    damage, expected = HOSTILE[name]
    folder = shutil.copytree(sound, tmp_path / "r")
    damage(folder)
    (tmp_path / "lab.py").write_text(f"import os\nos.mkdir({CANARY!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, out, error = run(monkeypatch, capsys, "audit", "r")
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    assert expected in error
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_gap_that_the_record_does_not_deny_is_told(tmp_path):
    split, recipe = make_split(), Recipe(**RECIPE)
    train_plainly(tmp_path / "r", build("mlp", SHAPE, CLASSES), split, recipe, rounds=5, model="mlp", every=2)
    assert [one.number for one in read_recording(tmp_path / "r").rounds] == [1, 3, 5]


def test_a_round_that_was_not_finished_is_passed_over(sound, tmp_path):
    folder = shutil.copytree(sound, tmp_path / "r")
    (folder / "rounds" / ".partial-0004").mkdir()
    (folder / "rounds" / ".partial-0004" / "sent.safetensors").write_bytes(b"half")
    assert len(read_recording(folder).rounds) == 3


def test_an_empty_record_says_so(tmp_path):
    Recorder(tmp_path / "r")
    with pytest.raises(BadInput, match="holds no round"):
        read_recording(tmp_path / "r")
