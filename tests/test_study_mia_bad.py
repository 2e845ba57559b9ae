import json
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch

from glasshouse import cli
from glasshouse.api import study as run_study
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.target import Variant, train_target
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import accuracy
from glasshouse.progress import Progress
from glasshouse.report.run import read_run
from glasshouse.runfolder import RunFolder
from glasshouse.studies.mia_bad import cells, grid
from glasshouse.studies.mia_bad.cells import NULL_CURVE, TableCell, Targets, batch_batch, batch_sample
from glasshouse.studies.study import Workplace

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
    assert (batch_batch(8), "auc-over-set-loss") in metrics
    raw = [row["chance"] for row in rows if row["metric"] == "accuracy-at-5:1"]
    assert raw == pytest.approx([5 / 6] * len(raw))
    verdicts = read_run(mia_bad).study.verdicts
    assert {verdict.verdict for verdict in verdicts} == {"open"}


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


def test_a_matched_central_model_is_the_one_whose_fit_is_closest(tmp_path):
    sizes = grid._sizes(80, 80, 80, 60, shadows=2, rounds=6, epochs=2)
    row = grid.GridRow(TableCell("table-1", "digits", "mlp"), sizes)
    with Engine(1) as engine:
        progress = Progress(quiet=True)
        place = Workplace(engine, 3, tmp_path / "cell", tmp_path / "shared", progress)
        targets = Targets()
        wanted = targets.trained(row.setting(5), place).train_accuracy
        matched = targets.matched(row.setting(5), place)
        central, fits = [], []
        for rounds in range(1, 7):
            training = sizes.training.model_copy(update={"rounds": rounds})
            experiment = prepare(row.setting(1).model_copy(update={"seed": 3, "training": training}))
            folder = RunFolder(tmp_path / f"by-hand-{rounds}", experiment.config())
            target = train_target(experiment, folder, engine, progress, Variant("central", "none"))
            central.append(target.case.clients.current)
            fits.append(accuracy(target.case.model, experiment.split.images("members")))
            if fits[-1] >= wanted:
                break
    distances = [abs(fit - wanted) for fit in fits]
    chosen = [torch.equal(matched.case.clients.current, vector) for vector in central].index(True)
    assert 0 < wanted < 1
    assert matched.train_accuracy == pytest.approx(fits[chosen])
    assert distances[chosen] == min(distances)
    assert matched.case.subject.strategy == matched.mode == "central"


@pytest.mark.parametrize(("fits", "wanted", "chosen", "trained"), [
    ([0.3, 0.58, 0.9, 1.0], 0.6, 0.58, 3),
    ([0.3, 0.5, 0.62, 1.0], 0.6, 0.62, 3),
    ([0.7, 0.8, 0.9, 1.0], 0.6, 0.7, 1),
    ([0.3, 0.4, 0.35, 0.3], 0.6, 0.4, 4),
])  # fmt: skip
def test_central_training_stops_at_the_fit_that_is_wanted(monkeypatch, fits, wanted, chosen, trained):
    asked = []

    def stopped(setting, place):
        for fit in fits:
            asked.append(fit)
            yield SimpleNamespace(train_accuracy=fit)

    monkeypatch.setattr(cells, "_stopped", stopped)
    monkeypatch.setattr(Targets, "trained", lambda *_: SimpleNamespace(train_accuracy=wanted))
    assert Targets().matched(None, None).train_accuracy == chosen
    assert asked == fits[:trained]
