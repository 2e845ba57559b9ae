"""Writing the rounds of a federation into a folder."""

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from glasshouse import BadInput, Recorder
from glasshouse.recording.folders import recorded_rounds

MODEL = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(2, np.float32)}


def moved(by):
    return {name: array + np.float32(by) for name, array in MODEL.items()}


def written(folder, rounds=(1,), clients=("a", "b"), **options):
    recorder = Recorder(folder, **options)
    for number in rounds:
        with recorder.round(number, moved(number)) as seen:
            for place, client in enumerate(clients):
                seen.update(client, moved(number + place), samples=10 * (place + 1))
    return recorder


def record(recorder, number, updates):
    """One round of updates, each a client with what it sends and its samples."""
    with recorder.round(number, MODEL) as seen:
        for client, tensors, samples in updates:
            seen.update(client, tensors, samples=samples)


def told(folder, number):
    return json.loads((folder / "rounds" / f"{number:04d}" / "round.json").read_text())


def files(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_round_holds_the_model_sent_and_each_update_in_their_order(tmp_path):
    written(tmp_path / "r")
    assert told(tmp_path / "r", 1)["clients"] == [
        {"name": "a", "samples": 10, "file": "update-0000.safetensors"},
        {"name": "b", "samples": 20, "file": "update-0001.safetensors"},
    ]
    folder = tmp_path / "r" / "rounds" / "0001"
    for file, expected in (("sent", moved(1)), ("update-0000", moved(1)), ("update-0001", moved(2))):
        found = load_file(folder / f"{file}.safetensors")
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


def test_the_federation_is_described_as_it_was_told(tmp_path):
    recipe = {"lr": 0.1, "betas": (0.8, 0.9), "optimiser": "adam"}
    shape = (1, 28, 28)
    Recorder(tmp_path / "r", model="lenet", shape=shape, classes=10, recipe=recipe, framework=("mine", None))
    content = json.loads((tmp_path / "r" / "federation.json").read_text())
    assert (content["format"], content["version"]) == ("glasshouse-record", 1)
    assert content["model"] == {"name": "lenet", "shape": [1, 28, 28], "classes": 10}
    assert content["recipe"] == {"lr": 0.1, "betas": [0.8, 0.9], "optimiser": "adam"}
    assert content["framework"] == {"name": "mine", "version": None}


def test_tensors_of_torch_are_recorded_like_arrays(tmp_path):
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in MODEL.items()}
    halves = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    with Recorder(tmp_path / "r").round(1, tensors) as seen:
        seen.update("a", halves, samples=1)
    folder = tmp_path / "r" / "rounds" / "0001"
    for file in ("sent", "update-0000"):
        np.testing.assert_array_equal(load_file(folder / f"{file}.safetensors")["weight"], MODEL["weight"])


def test_writing_takes_no_torch():
    code = (
        "import sys, numpy, tempfile\n"
        "from glasshouse import Recorder\n"
        "recorder = Recorder(tempfile.mkdtemp() + '/r', recipe={'lr': 0.1})\n"
        "with recorder.round(1, {'w': numpy.ones(2)}) as seen:\n"
        "    seen.update('a', {'w': numpy.ones(2)}, samples=1)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_beyond_so_many_clients_the_weighted_mean_of_all_is_kept(tmp_path):
    recorder = Recorder(tmp_path / "r", clients=1)
    with recorder.round(1, moved(1)) as seen:
        for place, client in enumerate(("a", "b", "c")):
            seen.update(client, moved(1 + place), samples=10 * (place + 1))
    round_one = told(tmp_path / "r", 1)
    assert [client["file"] for client in round_one["clients"]] == ["update-0000.safetensors", None, None]
    assert round_one["sum"] == {"file": "sum.safetensors", "samples": 60}
    mean = load_file(tmp_path / "r" / "rounds" / "0001" / "sum.safetensors")
    np.testing.assert_allclose(mean["weight"], moved(1)["weight"] + (20 + 60) / 60, rtol=1e-6)


def test_only_every_nth_round_is_recorded_and_the_others_cost_nothing(tmp_path):
    recorder = Recorder(tmp_path / "r", every=3)
    for number in range(1, 8):
        with recorder.round(number, MODEL if number % 3 == 1 else object()) as seen:
            assert seen.due == (number in (1, 4, 7))
            seen.update("a", MODEL if seen.due else object(), samples=1)
    assert recorder.rounds == (1, 4, 7)


def test_a_round_that_failed_leaves_no_trace(tmp_path):
    recorder = written(tmp_path / "r")
    before = files(tmp_path / "r")

    def fails():
        yield "a", MODEL, 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record(recorder, 2, fails())
    assert files(tmp_path / "r") == before


def test_a_killed_recorder_goes_on_with_the_round_that_was_not_whole(tmp_path):
    code = (
        "import os, sys, numpy\n"
        "from glasshouse import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for number in (1, 2):\n"
        "    with recorder.round(number, {'w': numpy.ones(2)}) as seen:\n"
        "        seen.update('a', {'w': numpy.ones(2)}, samples=1)\n"
        "        if number == 2: os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "r"]).returncode == 9
    recorder = Recorder(tmp_path / "r")
    assert recorder.rounds == (1,)
    with recorder.round(1, {"w": np.ones(2)}) as seen:
        assert not seen.due
    with recorder.round(2, {"w": np.zeros(2)}) as seen:
        seen.update("b", {"w": np.zeros(2)}, samples=1)
    assert recorder.rounds == (1, 2)
    assert [client["name"] for client in told(tmp_path / "r", 2)["clients"]] == ["b"]
    assert not list((tmp_path / "r" / "rounds").glob(".partial-*"))


def test_each_round_names_the_recorded_one_before_it(tmp_path):
    recorder = written(tmp_path / "r", rounds=(1, 2, 5))
    recorder.finish(MODEL)
    assert [told(tmp_path / "r", number)["follows"] for number in (1, 2, 5)] == [None, 1, 2]


def test_a_further_round_takes_the_final_model_away(tmp_path):
    recorder = written(tmp_path / "r")
    recorder.finish(MODEL)
    assert (tmp_path / "r" / "final.safetensors").exists()
    written(tmp_path / "r", rounds=(2,))
    assert not (tmp_path / "r" / "final.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "other", "names"),
    [
        ({"seed": 0}, {"seed": 1}, "seed"),
        ({"model": "lenet"}, {"model": "mlp"}, "model"),
        ({"recipe": {"lr": 0.1}}, {"recipe": {"lr": 0.2}}, "recipe"),
    ],
)
def test_the_record_of_another_federation_is_not_touched(tmp_path, options, other, names):
    written(tmp_path / "r", **options)
    before = files(tmp_path / "r")
    with pytest.raises(BadInput, match=f"another federation.*{names}"):
        Recorder(tmp_path / "r", **other)
    assert files(tmp_path / "r") == before


def test_a_folder_of_something_else_is_not_touched(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="holds no record"):
        Recorder(tmp_path)
    assert files(tmp_path) == {"thesis.txt": b"years of work"}


@pytest.mark.parametrize(
    "tensors",
    [
        {"weight": MODEL["weight"]},
        MODEL | {"bias": np.zeros(3, np.float32)},
        MODEL | {"more": np.zeros(3, np.float32)},
        MODEL | {"bias": np.array(["x", "y"])},
        {},
        [1, 2],
    ],
    ids=["lacks one", "another shape", "one more", "text", "none", "a list"],
)
def test_an_update_of_another_model_is_refused_by_its_client_and_round(tmp_path, tensors):
    recorder = Recorder(tmp_path / "r")
    with pytest.raises(BadInput, match="update of client 'clinic' in round 3"):
        record(recorder, 3, [("clinic", tensors, 1)])
    assert recorder.rounds == ()


def test_counters_of_steps_may_be_left_out(tmp_path):
    counted = MODEL | {"steps": np.array(3)}
    with Recorder(tmp_path / "r").round(1, counted) as seen:
        seen.update("a", MODEL, samples=1)
    recorder = Recorder(tmp_path / "r")
    with recorder.round(2, counted) as seen:
        seen.update("a", MODEL, samples=1)
    assert recorder.rounds == (1, 2)


def test_what_was_sent_is_recorded_even_where_it_is_no_number(tmp_path):
    broken = MODEL | {"bias": np.array([np.nan, np.inf], np.float32)}
    with Recorder(tmp_path / "r").round(1, MODEL) as seen:
        seen.update("a", broken, samples=1)
    found = load_file(tmp_path / "r" / "rounds" / "0001" / "update-0000.safetensors")
    np.testing.assert_array_equal(found["bias"], broken["bias"])


@pytest.mark.parametrize("samples", [0, -1, 1.5, "many", None, True, 2**60])
def test_a_client_has_a_whole_number_of_samples(tmp_path, samples):
    with pytest.raises(BadInput, match="samples"), Recorder(tmp_path / "r").round(1, MODEL) as seen:
        seen.update("a", MODEL, samples=samples)


def test_a_client_sends_once_in_a_round(tmp_path):
    with pytest.raises(BadInput, match="'a' sent twice in round 1"):
        record(Recorder(tmp_path / "r"), 1, [("a", MODEL, 1)] * 2)


def test_a_sum_names_all_clients_that_are_in_it(tmp_path):
    recorder = Recorder(tmp_path / "r", channel="sum", described="SecAgg+")
    with recorder.round(1, MODEL) as seen:
        seen.sum(moved(1), clients={"a": 1, "b": np.int64(3)})
    assert [client["file"] for client in told(tmp_path / "r", 1)["clients"]] == [None, None]
    assert told(tmp_path / "r", 1)["sum"]["samples"] == 4
    with recorder.round(2, MODEL) as seen:
        seen.update("a", MODEL, samples=1)
        with pytest.raises(BadInput, match="not of all clients"):
            seen.sum(MODEL, clients={"b": 1})


def test_a_full_disk_is_one_line_and_leaves_the_record_whole(tmp_path, monkeypatch):
    recorder = written(tmp_path / "r")
    before = files(tmp_path / "r")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("glasshouse.recording.arrays.os.fsync", full)
    with pytest.raises(BadInput, match=r"No space left.*free some space"):
        record(recorder, 2, [("a", MODEL, 1)])
    with pytest.raises(BadInput, match="No space left"):
        recorder.finish(MODEL)
    monkeypatch.undo()
    assert {name for name in files(tmp_path / "r") if ".partial" not in name} == before.keys()
    written(tmp_path / "r", rounds=(2,))
    assert recorded_rounds(tmp_path / "r") == (1, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"every": 0},
        {"clients": -1},
        {"kind": "gradient"},
        {"channel": "secret"},
        {"recipe": {"learning_rate": 0.1}},
        {"recipe": {"lr": "fast"}},
        {"recipe": {"lr": float("nan")}},
        {"shape": (28, 28)},
        {"classes": 1},
        {"model": ""},
        {"seed": -1},
        {"framework": ("x" * 2000, None)},
    ],
    ids=str,
)
def test_what_does_not_describe_a_federation_is_refused_before_anything_is_written(tmp_path, options):
    with pytest.raises(BadInput):
        Recorder(tmp_path / "r", **options)
    assert not (tmp_path / "r").exists()
