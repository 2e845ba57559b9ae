"""What is kept of single records: exact, bounded, sealed, the same again, and what results make of it."""

import json
import shutil
import sys

import numpy as np
import pytest
from report_runs import a_row

import glasshouse
from glasshouse import Setting, scores
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import read_setting
from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits, Records
from glasshouse.measures.membership import auc
from glasshouse.packing import packed, unpacked
from glasshouse.report.run import read_run
from glasshouse.scores import SCORES, read_scores, write_scores

ATTACKS = ("loss-threshold", "gap", "set-loss(batch_size=4)", "fgsm(eps=(0.05,0.1))", "source-inference")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A small audit with two seeds."""
    setting = Setting(
        data={"clients": 3, "members": 60, "nonmembers": 60, "auxiliary": 60, "test": 60},
        model={"name": "mlp"},
        training={"rounds": 3, "epochs": 3, "batch_size": 10, "lr": 0.1},
        audit={"attacks": ATTACKS, "defences": ("clipping(norm=1.0)",), "adaptive": False, "curvature": 0},
    )
    return run_audit(setting, seeds=2, out=tmp_path_factory.mktemp("runs") / "run", workers=1, quiet=True)


def value(results, metric, seed=0, defence="none", **labels):
    (row,) = [
        row
        for row in results.findings
        if (row.metric, row.seed, row.defence, row.strategy) == (metric, seed, defence, "fedavg")
        and all(getattr(row, name) == wanted for name, wanted in labels.items())
    ]
    return row.value


@pytest.mark.parametrize("seed", [0, 1])
def test_the_findings_follow_from_what_is_kept(results, seed):
    kept = results.scores("loss-threshold", seed=seed)
    assert len(kept) == 120
    assert auc(kept["score"], kept["member"]).value == value(results, "auc", seed, attack="loss-threshold")
    right = kept["decision"] == kept["member"]
    balanced = value(results, "balanced-accuracy", seed, attack="loss-threshold")
    assert right.mean() == pytest.approx(balanced)  # as many members as others
    batches = results.scores("set-loss(batch_size=4)", seed=seed)
    assert auc(batches["score"], batches["member"]).value == value(
        results, "auc", seed, attack="set-loss(batch_size=4)"
    )
    images = results.scores("fgsm(eps=(0.05,0.1))", seed=seed)
    robust = images["hit"][images["eps"] == 0.1]
    assert robust.mean() == value(results, "robust-accuracy", seed, attack="fgsm(eps=(0.05,0.1))")
    source = results.scores("source-inference", seed=seed)
    assert source["hit"].mean() == value(results, "source-accuracy", seed)
    assert ((source["named"] == source["client"]) == source["hit"]).all()
    (accuracy,) = [
        one
        for one in results.records
        if (one.table, one.seed, one.defence, one.strategy) == ("accuracy", seed, "none", "fedavg")
    ]
    assert accuracy["hit"].mean() == value(results, "test-accuracy", seed)


def test_records_are_positions_in_the_data_set(results):
    pool = load("digits").pool
    kept = results.scores("loss-threshold", seed=0)
    again = results.scores("gap", seed=0)
    np.testing.assert_array_equal(kept["record"], again["record"])
    assert len(set(kept["record"])) == 120
    assert kept["record"].max() < len(pool)
    assert ((kept["client"] >= 0) == kept["member"]).all()
    images = results.scores("fgsm(eps=(0.05,0.1))", seed=0)
    assert not set(images["record"]) & set(kept["record"])


def test_a_batch_is_known_by_its_records(results):
    first, second = (results.scores("set-loss(batch_size=4)", seed=0, defence=name)
                     for name in ("none", "clipping(norm=1.0)"))  # fmt: skip
    np.testing.assert_array_equal(first["record"], second["record"])
    other = results.scores("set-loss(batch_size=4)", seed=1)
    assert not set(first["record"]) & set(other["record"])


def test_work_that_is_kept_gives_the_same_file_again(results, tmp_path):
    before = (results.folder / SCORES).read_bytes()
    run_audit(
        read_setting(results.folder / "config.toml"), seeds=2, out=results.folder, workers=1, quiet=True
    )
    assert (results.folder / SCORES).read_bytes() == before


def test_a_page_needs_no_scores_and_scores_that_were_changed_are_refused(results, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(results.folder, copy, ignore=shutil.ignore_patterns("work", "seeds"))
    content = bytearray((copy / SCORES).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / SCORES).write_bytes(bytes(content))
    read = glasshouse.read_results(copy)
    with pytest.raises(BadInput, match=r"scores.npz cannot be read \(it does not fit"):
        _ = read.records
    (copy / SCORES).unlink()
    assert read_run(copy).rows == results.findings
    assert glasshouse.read_results(copy).records == ()


def test_results_are_read_back_as_they_were(results):
    read = glasshouse.read_results(results.folder)
    assert read.findings == results.findings
    assert read.records == results.records


def some(table="membership", count=5, **columns):
    known = {"record": np.arange(count), "score": np.linspace(0, 1, count)} | columns
    return Records(table=table, attack="a", adversary="outsider", seed=0, columns=known)


def test_what_is_written_is_read_exactly(tmp_path):
    odd = np.array([0.1, -1e300, 5e-324, 3.0, 2**53 + 1.0])
    written = (
        some(score=odd),
        some(score=odd.clip(-1, 1).astype(np.float32)),
        some("other", hit=np.arange(5) % 2 == 0),
        some(count=0),
    )
    write_scores(tmp_path / SCORES, written)
    read = read_scores(tmp_path / SCORES)
    assert [one.table for one in read] == [one.table for one in written]
    for before, after in zip(written, read):
        for name in before.columns:
            np.testing.assert_array_equal(before[name], after[name])


def test_the_file_holds_no_pickle_and_is_a_table_for_each_kind(tmp_path):
    write_scores(tmp_path / SCORES, (some(), some("other")))
    with np.load(tmp_path / SCORES, allow_pickle=False) as file:
        assert set(file.files) == {"index", "membership", "other"}
        assert file["index"]["attack"].tolist() == ["a", "a"]
        assert file["membership"].dtype.names == ("entry", "record", "score")


def test_what_does_not_fit_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "MOST", 300)
    write_scores(tmp_path / SCORES, (some(), some(count=100), some()))
    assert [len(one) for one in read_scores(tmp_path / SCORES)] == [5, 5]
    with np.load(tmp_path / SCORES) as file:
        assert file["index"]["kept"].tolist() == [True, False, True]
        assert file["index"]["rows"].tolist() == [5, 100, 5]


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all"])
def test_a_file_that_is_none_is_refused_in_a_line(tmp_path, content):
    (tmp_path / SCORES).write_bytes(content)
    with pytest.raises(BadInput, match="cannot be read") as refused:
        read_scores(tmp_path / SCORES)
    assert str(refused.value).isprintable()


def test_an_array_of_objects_is_refused(tmp_path):
    np.savez(tmp_path / SCORES, index=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadInput, match="cannot be read"):
        read_scores(tmp_path / SCORES)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32, bool])
def test_a_packed_column_is_the_same_again(kind):
    column = np.arange(7).astype(kind)
    again = unpacked(packed(column))
    assert again.dtype == column.dtype
    np.testing.assert_array_equal(again, column)


@pytest.mark.parametrize("text", ["", "<f8", "|O gASV", "<f8 !!", "<f8 eJxjYGBg", "object x"])
def test_what_is_no_packed_column_is_refused(text):
    with pytest.raises(ValueError, match="no column of numbers"):
        unpacked(text)


def test_records_pass_through_json_with_the_exhibits():
    exhibits = Exhibits(records=(some(),)).about(cell="c", seed=3)
    again = Exhibits.model_validate_json(exhibits.model_dump_json())
    assert again == exhibits
    assert (again.records[0].cell, again.records[0].seed) == ("c", 3)
    assert again != Exhibits(records=(some(score=np.zeros(5)),)).about(cell="c", seed=3)


# What results do with it.


def test_attacks_are_compared_on_the_same_records_over_the_seeds(results):
    (one,) = [one for one in results.compare("gap", "loss-threshold", metric="auc")
              if one.row.defence == "none"]  # fmt: skip
    values = [
        value(results, "auc", seed, attack="loss-threshold") - value(results, "auc", seed, attack="gap")
        for seed in (0, 1)
    ]
    assert one.value == pytest.approx(np.mean(values))
    assert one.unpaired == ""
    assert one.estimate.n == 240
    (back,) = [one for one in results.compare("loss-threshold", "gap", metric="auc")
               if one.row.defence == "none"]  # fmt: skip
    assert (back.low, back.high) == pytest.approx((-one.high, -one.low))


def test_defences_are_compared_under_each_attack(results):
    found = results.compare("none", "clipping")
    assert {one.row.attack for one in found} == {None, *ATTACKS}
    (accuracy,) = [one for one in found if one.row.metric == "test-accuracy"]
    assert accuracy.unpaired == ""
    assert "test accuracy" in str(found)
    assert str(found).count("\n") == len(found) - 1
    assert found._repr_html_().count("<tr>") == len(found) + 1


@pytest.mark.parametrize(("names", "words"), [
    (("gap", "gapp"), "unknown attack 'gapp'; did you mean 'gap'?"),
    (("gap", "gap"), "gap and gap are the same attack"),
    (("gap", "source-inference"), "share no measured number"),
    (("none", "pruning"), "unknown defence 'pruning'"),
])  # fmt: skip
def test_what_cannot_be_compared_is_named(results, names, words):
    with pytest.raises(BadInput) as refused:
        results.compare(*names)
    assert words in str(refused.value)


def test_scores_that_are_not_there_or_not_the_only_ones_are_named(results):
    with pytest.raises(BadInput, match="name one of seed: 0, 1"):
        results.scores("gap")
    with pytest.raises(BadInput, match="attacks with scores: fgsm"):
        results.scores("lira")


def test_results_show_themselves_in_a_few_lines(results):
    lines = str(results).splitlines()
    assert len(lines) < 12
    assert "over 2 seeds" in lines[0]
    assert any(line.startswith("  outsider: ") and "AUC" in line for line in lines)
    assert lines[-1] == f"  page: {results.report}"
    assert repr(results).count("\n") == 0


def test_a_notebook_shows_a_table_of_the_strongest_attacks(results):
    html = results._repr_html_()
    for words in ("outsider", "curious server", "undefended", "clipping 1.0", "95% interval"):
        assert words in html
    assert html.count("<tr") == 1 + 2 * 3  # three adversaries under two defences
    assert "<script" not in html


def test_findings_become_a_data_frame(results):
    pandas = pytest.importorskip("pandas")
    frame = results.frame()
    assert len(frame) == len(results.findings)
    read = pandas.read_json(results.folder / "results.json")
    assert list(frame.columns) == list(read.columns)


def test_without_pandas_a_data_frame_is_refused_with_the_remedy(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="pip install pandas"):
        results.frame()


def test_names_in_a_notebook_are_no_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    folder = tmp_path / "run"
    folder.mkdir()
    rows = [a_row(attack=evil, adversary=evil, defence=evil)]
    (folder / "results.json").write_text(json.dumps(rows))
    assert "<script" not in glasshouse.read_results(folder)._repr_html_()
