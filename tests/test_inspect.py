"""What one recorded update gives away: `glasshouse inspect`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from recorded_updates import CLASSES, SHAPE, batch, normed, perceptron, record, smooth
from safetensors.torch import load_file, save_file
from test_cli import run

from glasshouse import inspect_update
from glasshouse.access import Protocol
from glasshouse.auditing.inspecting.reading import Told, read_update
from glasshouse.auditing.inspecting.recorded import read_recorded, told_kind
from glasshouse.errors import BadInput
from glasshouse.learning.recipe import Recipe

EXAMPLES = Path(__file__).parent.parent / "examples"


def reading(network, before, update, told=None):
    told = told or Told()
    recorded = read_recorded(network, before, update)
    protocol = Protocol(network, recorded.layout, Recipe(batch_size=0), SHAPE, CLASSES)
    return read_update(recorded, protocol, *_kinds(recorded, told, update, before))


def _kinds(recorded, told, update, before):
    kinds, why = told_kind(recorded, told.kind, update, before)
    return kinds, told, why


@pytest.mark.parametrize("make", [perceptron, smooth])
@pytest.mark.parametrize("kind", ["gradient", "delta", "after"])
@pytest.mark.parametrize("labels", [[3], [0, 3, 3]])
def test_an_update_says_what_it_is_and_which_labels_it_held(tmp_path, make, kind, labels):
    before, update = record(tmp_path, make(), *batch(labels), kind)
    read = reading(make(), before, update)
    assert read.kind == kind
    assert read.samples == len(labels)
    np.testing.assert_array_equal(read.fit.counts, np.bincount(labels, minlength=CLASSES))


@pytest.mark.parametrize("lr", [0.02, 0.3])
def test_the_learning_rate_of_one_step_is_read_off(tmp_path, lr):
    before, update = record(tmp_path, perceptron(), *batch([1, 4]), "after", lr)
    read = reading(perceptron(), before, update)
    assert read.recipe.lr == pytest.approx(lr, rel=0.02)


def test_the_rank_counts_up_to_more_images_than_there_are_classes(tmp_path):
    before, update = record(tmp_path, perceptron(), *batch([0, 1, 2, 3, 4, 4, 1, 0, 0]), "gradient")
    read = reading(perceptron(), before, update)
    assert (read.samples, read.counted) == (9, True)


def test_a_full_rank_is_no_count(tmp_path):
    before, update = record(tmp_path, perceptron(), *batch([0, 1, 2, 3, 4] * 8), "gradient")
    read = reading(perceptron(), before, update)
    assert not read.counted
    assert "at least" in " ".join(read.words)


def test_batch_norm_counts_the_steps(tmp_path):
    before, update = record(tmp_path, normed(), *batch([0, 1, 2]), "after", 0.01, 3)
    read = reading(normed(), before, update, Told(samples=3, lr=0.01))
    assert read.recipe.total_steps(3) == 3
    assert "counted 3 local steps" in " ".join(read.words)


def test_what_the_file_states_of_itself_counts(tmp_path):
    before, update = record(tmp_path, perceptron(), *batch([2]), "delta", notes={"kind": "delta"})
    read = reading(perceptron(), before, update)
    assert read.kind == "delta"
    assert "its file says so" in read.words[0]


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return record(tmp_path, perceptron(), *batch([1, 4, 4]), "after")


def test_without_a_truth_labels_and_objective_are_found_and_nothing_is_judged(recorded, tmp_path):
    before, update = recorded
    seen = inspect_update(
        update,
        before,
        perceptron(9),
        shape=SHAPE,
        classes=CLASSES,
        out=tmp_path / "run",
        workers=1,
        quiet=True,
    )
    rows = {(row.attack.partition("(")[0], row.metric): row for row in seen.findings}
    counted = {row.cell.rpartition("-")[2]: row.value for row in seen.findings if row.metric == "label-count"}
    assert counted == {"1": 1.0, "4": 2.0}
    assert rows["label-counts", "label-images"].value == 3
    assert rows["label-counts", "label-overlap"].value is None
    assert rows["spear", "psnr"].value is None
    assert "--truth" in rows["spear", "psnr"].reason
    assert rows["spear", "gradient-mismatch"].value < 1e-4 < rows["spear", "gradient-mismatch"].chance
    assert seen.statement.answer.startswith("EXPOSED")
    assert any(line.startswith("r-gap: ") for line in seen.statement.untried)
    pictures = json.loads((seen.folder / "curves.json").read_text())["gallery"]
    assert [picture["original"] for picture in pictures] == [None] * 3
    assert all((seen.folder / picture["result"]).is_file() for picture in pictures)


def test_with_the_truth_it_is_judged(recorded, tmp_path):
    before, update = recorded
    x, y = batch([1, 4, 4])
    seen = inspect_update(
        update,
        before,
        perceptron(9),
        classes=CLASSES,
        truth=(x.numpy(), y.numpy()),
        out=tmp_path / "run",
        workers=1,
        quiet=True,
    )
    rows = {(row.attack.partition("(")[0], row.metric): row.value for row in seen.findings}
    assert rows["label-counts", "label-overlap"] == 1.0
    assert rows["spear", "psnr"] > 40
    assert rows["spear", "recovery-rate"] == 1.0
    page = seen.report.read_text()
    assert "Statement of risk" in page
    assert "What was not tried" in page


def test_where_no_closed_form_applies_a_search_begins(tmp_path):
    before, update = record(tmp_path, smooth(), *batch([2, 3]), "gradient")
    seen = inspect_update(
        update,
        before,
        smooth(9),
        shape=SHAPE,
        classes=CLASSES,
        seconds=4,
        out=tmp_path / "run",
        workers=1,
        quiet=True,
    )
    tried = {row.attack.partition("(")[0] for row in seen.findings if row.metric == "gradient-mismatch"}
    assert {"dlg", "swift-inversion"} <= tried


def bad(tmp_path, change):
    """The weights before, and an update whose tensors `change` spoils."""
    before, update = record(tmp_path, perceptron(), *batch([1, 2]), "gradient")
    save_file(change(load_file(update)), tmp_path / "bad.safetensors")
    return before, tmp_path / "bad.safetensors"


SPOILED = {
    "wrong names": (lambda t: {f"net.{name}": value for name, value in t.items()}, "lack"),
    "a missing name": (
        lambda t: {name: value for name, value in t.items() if name != "1.bias"},
        "lack 1.bias",
    ),
    "wrong shapes": (lambda t: {name: value[:2] for name, value in t.items()}, "has shape"),
    "NaN": (lambda t: {name: value * torch.nan for name, value in t.items()}, "NaN"),
    "zeros": (lambda t: {name: value * 0 for name, value in t.items()}, "zeros alone"),
    "nothing": (lambda t: {}, "lack"),
}


@pytest.mark.parametrize("fault", SPOILED)
def test_a_bad_update_is_one_line(tmp_path, monkeypatch, capsys, fault):
    change, message = SPOILED[fault]
    before, update = bad(tmp_path, change)
    assert message in refused(monkeypatch, capsys, update, before)


def refused(monkeypatch, capsys, update, before, *words):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    told = "--before", before, "--model", "recorded_updates:perceptron", "--shape", "1x4x4", "--classes", "5"
    code, _, error = run(monkeypatch, capsys, "inspect", update, *told, *words)
    assert code == 2
    assert error.count("\n") == 1
    return error


def test_files_that_are_no_tensors_are_one_line(recorded, tmp_path, monkeypatch, capsys):
    before, update = recorded
    truncated, pickled = tmp_path / "cut.safetensors", tmp_path / "whole.pt"
    truncated.write_bytes(update.read_bytes()[:500])
    torch.save(perceptron(), pickled)
    assert "not safetensors" in refused(monkeypatch, capsys, truncated, before)
    assert "could run code" in refused(monkeypatch, capsys, pickled, before)
    assert "no such file" in refused(monkeypatch, capsys, tmp_path / "none.pt", before)


def test_an_update_and_weights_of_two_models_are_refused(recorded, tmp_path, monkeypatch, capsys):
    before, update = recorded
    stranger = tmp_path / "stranger.safetensors"
    save_file(perceptron(5).state_dict(), stranger)
    assert "another model" in refused(monkeypatch, capsys, stranger, before)
    assert "two models" in refused(monkeypatch, capsys, stranger, before, "--kind", "after")
    assert "equals" in refused(monkeypatch, capsys, before, before)
    save_file(smooth().state_dict(), stranger)
    assert "lack" in refused(monkeypatch, capsys, update, stranger)


def test_bad_options_are_one_line(recorded, tmp_path, monkeypatch, capsys):
    before, update = recorded
    truth = tmp_path / "truth.npz"
    x, _ = batch([0, 1])
    np.savez(truth, x=x.numpy(), y=np.array([0, 7]))
    assert "label 7" in refused(monkeypatch, capsys, update, before, "--truth", truth)
    assert "kind" in refused(monkeypatch, capsys, update, before, "--kind", "weights")
    assert "seconds" in refused(monkeypatch, capsys, update, before, "--seconds", "0")
    assert "unknown mode 'test'" in refused(monkeypatch, capsys, update, before, "--mode", "test")
    for option in ("samples", "epochs", "batch-size"):
        line = refused(monkeypatch, capsys, update, before, f"--{option}", "0")
        assert f"{option.replace('-', '_')} = 0 is out of range; it must be at least 1" in line
    assert "12" in refused(monkeypatch, capsys, update, before, "--classes", "12")
    with pytest.raises(BadInput, match="--shape"):
        inspect_update(update, before, "recorded_updates:perceptron", classes=CLASSES)


def test_the_example_is_inspected_from_end_to_end(tmp_path):
    command = [sys.executable, str(EXAMPLES / "record_update.py")]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "record_update.py").write_text((EXAMPLES / "record_update.py").read_text())
    told = "--before before.safetensors --model record_update:Network --shape 1x8x8 --truth truth.npz"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "glasshouse.cli",
            "inspect",
            "update.safetensors",
            *told.split(),
            "--out",
            "run",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("EXPOSED: 4 of 4")
    assert last == "run"
    rows = json.loads((tmp_path / "run" / "results.json").read_text())
    assert max(row["value"] for row in rows if row["metric"] == "psnr" and row["value"] is not None) > 60
    assert "data:image/png" in (tmp_path / "run" / "report.html").read_text()
