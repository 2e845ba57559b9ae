import errno
import json
import os

import pytest
import torch

from glasshouse.errors import BadInput
from glasshouse.findings import Finding, as_csv, from_row, rows
from glasshouse.store import (
    RunFolder,
    open_run,
    read_json,
    read_tensors,
    write_bytes,
    write_json,
    write_tensors,
)


def finding(**entries):
    return Finding(
        **{"source": "audit", "cell": "a", "family": "utility", "metric": "m", "value": 0.5} | entries
    )


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "results.json"
    write_bytes(file, b"old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        BadInput, match=r"results.json cannot be written \(No space left on device\); free some"
    ):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose another --out"):
        write_json(tmp_path / "file" / "below" / "x.json", {})


def test_tensors_and_notes_come_back(tmp_path):
    write_tensors(tmp_path / "t.safetensors", {"a": torch.arange(3.0)}, {"note": "é"})
    tensors, notes = read_tensors(tmp_path / "t.safetensors")
    assert torch.equal(tensors["a"], torch.arange(3.0))
    assert notes == {"note": "é"}


@pytest.mark.parametrize("name", ["x.json", "x.safetensors"])
def test_damaged_files_are_named_with_a_remedy(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80 half a fi")
    read = read_json if name.endswith("json") else read_tensors
    with pytest.raises(BadInput, match=f"{name} is damaged .*delete it and run again"):
        read(tmp_path / name)


def test_work_that_was_kept_comes_back_in_a_later_run(tmp_path):
    folder = RunFolder(tmp_path / "run", "seed = 0\n")
    assert folder.kept("a/b", Finding) is None
    folder.keep("a/b", finding(assumes=("x",), note="y"))
    again = RunFolder(tmp_path / "run", "seed = 0\n")
    assert again.kept("a/b", Finding) == finding(assumes=("x",), note="y")


def test_work_of_another_kind_than_is_expected_is_damaged(tmp_path):
    folder = RunFolder(tmp_path / "run", "seed = 0\n")
    write_json(folder.work / "a.json", {"metric": "m"})
    with pytest.raises(BadInput, match=r"a\.json is damaged; delete it and run again"):
        folder.kept("a", Finding)


def test_a_folder_keeps_to_one_configuration(tmp_path):
    RunFolder(tmp_path / "run", "seed = 0\n")
    RunFolder(tmp_path / "run", "seed = 0\n")
    with pytest.raises(BadInput, match="another configuration"):
        RunFolder(tmp_path / "run", "seed = 1\n")


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(BadInput, match="is not empty and holds no run"):
        RunFolder(tmp_path, "seed = 0\n")


def test_an_unfinished_run_is_continued_and_a_finished_one_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = open_run(None, "audit-x", "seed = 0\n")
    assert open_run(None, "audit-x", "seed = 0\n").path == first.path
    assert open_run(None, "audit-x", "seed = 1\n").path != first.path
    write_json(first.path / "results.json", [])
    assert open_run(None, "audit-x", "seed = 0\n").path == first.path
    (first.path / "report.html").write_text("")
    assert open_run(None, "audit-x", "seed = 0\n").path != first.path


def test_findings_have_the_documented_keys_and_come_back():
    row = finding(assumes=("a", "b")).row()
    assert list(row) == [
        "source", "cell", "family", "adversary", "attack", "defence", "strategy", "data", "model", "metric",
        "value", "low", "high", "chance", "n", "seed", "assumes", "reason", "note",
        "printed", "seconds",
    ]  # fmt: skip
    assert from_row(json.loads(json.dumps(row))) == finding(assumes=("a", "b"))
    assert rows([finding()])[0]["assumes"] == []


def test_a_number_that_is_none_needs_a_reason_and_nan_is_refused():
    with pytest.raises(AssertionError, match="needs its reason"):
        finding(value=None, assumes=("40 auxiliary images",), note="what else a reader should know")
    assert finding(value=None, reason="the round failed").reason == "the round failed"
    with pytest.raises(AssertionError, match="value is nan"):
        finding(value=float("nan"))


def test_the_csv_has_a_header_and_a_line_for_each_finding():
    lines = as_csv([finding(), finding(assumes=("x", "y"))]).splitlines()
    assert lines[0].startswith("source,cell,family")
    assert "x; y" in lines[2]
