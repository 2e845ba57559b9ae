import json
import shutil
import sys

import pytest

from glasshouse import cli
from glasshouse.api import study as run_study
from glasshouse.report.run import read_run
from glasshouse.studies.mia_bad.cells import NULL_CURVE, SAMPLE, batch_batch, batch_sample
from glasshouse.studies.mia_bad.training import Targets

CENTRAL = "table-1/digits/mlp/central/*"
FILES = ("results.json", "results.csv", "study.json", "report.html", "config.toml")


@pytest.fixture(scope="module")
def mia_bad(tmp_path_factory):
    """The central row of the smoke scale."""
    folder = tmp_path_factory.mktemp("mia-bad") / "run"
    run_study("mia-bad", scale="smoke", cells=CENTRAL, out=folder, workers=1, quiet=True)
    return folder


def rows_of(folder):
    rows = json.loads((folder / "results.json").read_text())
    return [row | {"seconds": None} for row in rows]


def test_mia_bad_runs_all_attacks_of_a_row(mia_bad):
    rows = rows_of(mia_bad)
    head = CENTRAL.removesuffix("*")
    assert {row["cell"] for row in rows} == {f"{head}{column}" for column in ("sample", "8", "16", "32")}
    assert not [row for row in rows if row["metric"] == "not-applicable"]
    metrics = {(row["attack"], row["metric"]) for row in rows if row["cell"] == f"{head}8"}
    for attack in (batch_sample(8), batch_batch(8), "set-loss(batch_size=8)", "set-llr(batch_size=8)"):
        assert {(attack, "auc"), (attack, "accuracy-at-5:1"), (attack, "balanced-accuracy")} <= metrics
    assert (NULL_CURVE, "null-auc") in metrics
    for attack in (batch_sample(8), batch_batch(8)):
        assert {
            (attack, f"{metric}-over-sample") for metric in ("accuracy-at-5:1", "balanced-accuracy")
        } <= metrics
    raw = [row["chance"] for row in rows if row["metric"] == "accuracy-at-5:1"]
    assert raw == pytest.approx([5 / 6] * len(raw))


def test_the_gain_is_the_difference_of_two_accuracies_and_closer_where_records_are_paired(mia_bad):
    rows = {(row["cell"], row["attack"], row["metric"]): row for row in rows_of(mia_bad)}
    head, widths = CENTRAL.removesuffix("*"), {}
    for metric in ("accuracy-at-5:1", "balanced-accuracy"):
        single = rows[f"{head}sample", SAMPLE, metric]
        for attack in (batch_sample(8), batch_batch(8)):
            wise = rows[f"{head}8", attack, metric]
            gain = rows[f"{head}8", attack, f"{metric}-over-sample"]
            assert gain["value"] == pytest.approx(wise["value"] - single["value"])
            assert gain["low"] < gain["value"] < gain["high"]
            below, above = wise["value"] - wise["low"], single["high"] - single["value"]
            widths[attack] = (gain["value"] - gain["low"]) / (below**2 + above**2) ** 0.5
        assert widths[batch_sample(8)] < 0.9
        assert widths[batch_batch(8)] == pytest.approx(1, abs=0.1)


def test_what_needs_no_federation_is_judged_of_the_central_row_alone(mia_bad):
    verdicts = {one.claim.partition(".")[0]: one.verdict for one in read_run(mia_bad).study.verdicts}
    judged = {number for number, verdict in verdicts.items() if verdict != "open"}
    assert judged == {"3", "4", "5", "6", "C"}


def test_mia_bad_judges_batches_only_in_batch_batch_and_the_set_attacks(mia_bad):
    for row in rows_of(mia_bad):
        if row["metric"] == "auc" and row["cell"].endswith("/32"):
            about_batches = row["attack"].startswith("set-") or "batch-batch" in row["attack"]
            assert any("batches of 32" in words for words in row["assumes"]) == about_batches
            assert (row["n"] < 100) == about_batches


def test_a_finished_mia_bad_is_left_as_it_is_by_the_command(mia_bad, monkeypatch, capsys):
    before = {name: (mia_bad / name).read_bytes() for name in FILES}
    words = [
        "study",
        "mia-bad",
        "--scale",
        "smoke",
        "--cells",
        CENTRAL,
        "--out",
        str(mia_bad),
        "--workers",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", ["glasshouse", *words, "--quiet"])
    monkeypatch.setattr(Targets, "trained", lambda *_: pytest.fail("a finished cell ran again"))
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    assert capsys.readouterr().out.strip().endswith(str(mia_bad))
    assert {name: (mia_bad / name).read_bytes() for name in FILES} == before


def test_a_mia_bad_that_was_cut_short_ends_with_the_same_numbers(mia_bad, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(mia_bad, folder)
    (folder / "work" / CENTRAL.replace("*", "8") / "seed-0000.json").unlink()
    for file in sorted((folder / "work/shared/shadows").glob("*.safetensors"))[:2]:
        file.unlink()
    run_study("mia-bad", scale="smoke", cells=CENTRAL, out=folder, workers=1, quiet=True)
    assert rows_of(folder) == rows_of(mia_bad)
    assert (folder / "study.json").read_bytes() == (mia_bad / "study.json").read_bytes()
