"""An audit gives the same findings and exhibits however many workers share it, and wherever it stopped."""

import pytest
from timeless import timeless

from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import make_setting
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder

INVERSION = "strongest-inversion(seconds=0.2)"
ATTACKS = ["loss-threshold", "lira", "saturated-head", "label-counts", "fgsm(eps=(0.1, 0.2))", INVERSION]
SETTING = make_setting({
    "data": {"clients": 3, "members": 45, "nonmembers": 30, "auxiliary": 60, "test": 30},
    "model": {"name": "mlp"},
    "training": {"rounds": 2, "batch_size": 15, "lr": 0.1, "local_test": 0},
    "audit": {
        "attacks": ATTACKS, "defences": ["clipping(norm=1.0)"], "shadows": 4, "observe": 2, "curvature": 20,
        "seconds": 0.3,
    },
})  # fmt: skip


def run(folder, workers=1, seed=0):
    """The findings and exhibits, without their seconds, and the pictures as they lie in the folder."""
    experiment = prepare(SETTING.model_copy(update={"seed": seed}))
    opened = RunFolder(folder, experiment.config())
    with Engine(workers) as engine, Progress(quiet=True) as progress:
        findings, exhibits = run_battery(experiment, opened, engine, progress)
    pictures = {path.name: path.read_bytes() for path in sorted((folder / "gallery").iterdir())}
    course = tuple(point.model_copy(update={"seconds": 0.0}) for point in exhibits.course)
    return timeless(findings), exhibits.model_copy(update={"course": course}), pictures


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("audit") / "run")


def test_the_audit_has_something_of_every_kind(whole):
    findings, exhibits, pictures = whole
    tried = {finding.attack for finding in findings if finding.family != "ladder"}
    assert tried == {None, "lira(adaptive=True)", *ATTACKS}
    assert any(finding.family == "ladder" and finding.metric == "psnr" for finding in findings)
    assert {finding.reason for finding in findings if finding.metric == "not-applicable"} == set()
    assert exhibits.training
    assert exhibits.roc
    assert exhibits.risk
    assert exhibits.robustness
    assert exhibits.course
    assert {path for picture in exhibits.gallery for path in (picture.original, picture.result)} == {
        f"gallery/{name}" for name in pictures
    }


def test_findings_and_exhibits_do_not_depend_on_the_number_of_workers(whole, tmp_path):
    assert run(tmp_path / "run", workers=2) == whole


@pytest.mark.parametrize("kept", [1, 9])
def test_an_audit_that_was_interrupted_between_attacks_ends_with_the_same(whole, tmp_path, monkeypatch, kept):
    keep, names = RunFolder.keep, []

    def interrupted(folder, name, value):
        if len(names) == kept:
            raise KeyboardInterrupt
        keep(folder, name, value)
        names.append(name)

    with monkeypatch.context() as cut:
        cut.setattr(RunFolder, "keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    files = [tmp_path / "run" / "work" / f"{name}.json" for name in names]
    written = [file.stat().st_mtime_ns for file in files]
    assert run(tmp_path / "run") == whole
    assert [file.stat().st_mtime_ns for file in files] == written


def test_another_seed_gives_other_numbers(whole, tmp_path):
    findings, _, _ = run(tmp_path / "run", seed=1)
    assert [finding.value for finding in findings] != [finding.value for finding in whole[0]]
