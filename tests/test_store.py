import errno
import json
import os
import shutil
import warnings

import pytest
import torch

from glasshouse.errors import BadInput, Fault
from glasshouse.findings import Finding, as_csv, from_row, rows
from glasshouse.provenance import Origin
from glasshouse.runfolder import RunFolder, open_run
from glasshouse.store import (
    keep,
    kept,
    read_sealed,
    read_tensors,
    slug,
    write_bytes,
    write_json,
    write_sealed,
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
    read = read_sealed if name.endswith("json") else read_tensors
    with pytest.raises(BadInput, match=f"{name} is damaged .*delete it and run again"):
        read(tmp_path / name)


def test_work_that_was_kept_comes_back_in_a_later_run(tmp_path):
    folder = RunFolder(tmp_path / "run", "seed = 0\n")
    assert folder.kept("a/b", Finding) is None
    folder.keep("a/b", finding(assumes=("x",), note="y"))
    again = RunFolder(tmp_path / "run", "seed = 0\n")
    assert again.kept("a/b", Finding) == finding(assumes=("x",), note="y")


def test_work_of_another_kind_than_is_expected_is_computed_anew(tmp_path):
    write_sealed(tmp_path / "a.json", {"metric": "m"})
    with pytest.warns(UserWarning, match=r"a\.json is damaged; what it held is computed anew"):
        assert kept(tmp_path / "a.json", Finding) is None


@pytest.mark.parametrize("place", ["b/x", "a/y"])
def test_work_that_took_the_place_of_other_work_is_computed_anew(tmp_path, place):
    folder = RunFolder(tmp_path / "run", "seed = 0\n")
    folder.keep("a/x", finding(value=0.25))
    (tmp_path / "run" / "work" / "b").mkdir()
    shutil.copy(tmp_path / "run" / "work" / "a" / "x.json", tmp_path / "run" / "work" / f"{place}.json")
    with pytest.warns(UserWarning, match="is damaged; what it held is computed anew"):
        assert folder.kept(place, Finding) is None
    moved = RunFolder((tmp_path / "run").rename(tmp_path / "moved"), "seed = 0\n")
    assert moved.kept("a/x", Finding) == finding(value=0.25)


def test_tensors_that_took_the_place_of_others_are_damaged(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {"a": torch.arange(3.0)})
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    with pytest.raises(Fault, match="its checksum does not fit"):
        read_tensors(tmp_path / "b.safetensors")


def test_a_folder_in_the_place_of_kept_work_is_named_before_the_work_is_done_in_vain(tmp_path):
    folder = RunFolder(tmp_path / "run", "seed = 0\n")
    (tmp_path / "run" / "work" / "x.json").mkdir(parents=True)
    with pytest.raises(Fault, match=r"is a folder, where a file belongs; delete the folder .*x\.json"):
        folder.kept("x", Finding)


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\x1c", "\v"])
def test_a_run_goes_on_whatever_splits_the_lines_of_its_configuration(tmp_path, sign):
    config = f'name = "a{sign}# by b 1"\n'
    RunFolder(tmp_path / "run", config)
    assert RunFolder(tmp_path / "run", config).news == ""


def flipped(content, bit):
    """The content with one bit flipped."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_no_flipped_bit_changes_a_value_that_was_kept(tmp_path):
    file, value = tmp_path / "a.json", [finding(value=0.25, n=12, note="as it was")]
    keep(file, value)
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        file.write_bytes(flipped(whole, bit))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert kept(file, list[Finding]) in (None, value)


def test_every_flipped_bit_in_a_file_of_tensors_is_noticed(tmp_path):
    file = tmp_path / "t.safetensors"
    write_tensors(file, {"a": torch.arange(3.0)}, {"rounds": "[1, 2]"})
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        file.write_bytes(flipped(whole, bit))
        with pytest.raises(Fault, match="is damaged"):
            read_tensors(file)


def test_tensors_that_share_their_memory_are_written(tmp_path):
    shared = torch.arange(6.0)
    write_tensors(tmp_path / "t.safetensors", {"a": shared, "b": shared, "c": shared.view(2, 3).T})
    tensors, _ = read_tensors(tmp_path / "t.safetensors")
    assert torch.equal(tensors["a"], tensors["b"])
    assert torch.equal(tensors["c"], shared.view(2, 3).T)


def test_a_name_is_never_too_long_for_a_file_system():
    names = [slug(f"pgd(eps=({'0.01,' * 100}{number}))") for number in range(2)]
    assert all(len(name) < 100 for name in names)
    assert len(set(names)) == 2


def test_what_other_code_made_is_gone_and_that_is_said(tmp_path):
    def opened(version, mine):
        return RunFolder(tmp_path / "run", "seed = 0\n", Origin({"glasshouse": version}, {"lab:Mine": mine}))

    first = opened("1", "aa")
    first.keep("a", 1)
    write_json(first.path / "results.json", [])
    assert opened("1", "aa").news == ""
    assert (first.path / "results.json").exists()
    assert "lab:Mine changed since" in opened("1", "bb").news
    assert not (first.path / "results.json").exists()
    assert first.kept("a", int) == 1
    assert "glasshouse changed since" in opened("2", "bb").news
    assert first.kept("a", int) is None


def test_other_data_are_refused_unless_the_code_changed_that_makes_them(tmp_path):
    def opened(version, data):
        return RunFolder(tmp_path / "run", "seed = 0\n", Origin({"lab:data": version}, given={"data": data}))

    opened("1", "aa").keep("a", 1)
    with pytest.raises(BadInput, match="holds a run of other data; choose another --out"):
        opened("1", "bb")
    assert opened("2", "bb").kept("a", int) is None


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
