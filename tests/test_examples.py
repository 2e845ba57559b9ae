import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import glasshouse
from glasshouse import audit
from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.membership.threshold import LossThreshold
from glasshouse.auditing.setting import TrainingTable, read_setting
from glasshouse.data.images import Images
from glasshouse.models.loading import load_model

EXAMPLES = Path(__file__).parent.parent / "examples"
ADVERSARIES = {"outsider", "owner", "curious server", "blind server", "crafting server"}
TINY = """
[data]
clients = 3
members = 90
nonmembers = 30
auxiliary = 30
test = 60
[training]
rounds = 1
[audit]
attacks = ["gap"]
defences = []
central = false
"""


@pytest.fixture
def bring_your_own(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    yield __import__("bring_your_own")
    sys.modules.pop("bring_your_own")


@pytest.fixture
def research_attack(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    yield __import__("research_attack")
    sys.modules.pop("research_attack")


def shortened(setting, **data):
    """The same setting with a few images and two rounds."""
    parts = {"members": 90, "nonmembers": 30, "auxiliary": 30, "test": 60, "clients": 3} | data
    return setting.model_copy(
        update={
            "data": setting.data.model_copy(update=parts),
            "training": setting.training.model_copy(update={"rounds": 2}),
            "audit": setting.audit.model_copy(
                update={"defences": (), "central": False, "seconds": 1.0, "ladder": False}
            ),
        }
    )


def test_the_example_pictures_are_labelled_as_described(bring_your_own):
    x, y = bring_your_own.images()
    assert x.shape == (6000, 12, 12)
    assert 0 <= x.min() <= x.max() <= 1
    bright = x > 0.6  # noise alone stays below 0.4
    standing, lying = bright.all(1).any(1), bright.all(2).any(1)
    np.testing.assert_array_equal(standing, y == 0)
    np.testing.assert_array_equal(lying, y == 1)


def test_the_example_network_fits_its_pictures(bring_your_own):
    model = load_model("bring_your_own:Network", (1, 12, 12), 3)
    assert isinstance(model, bring_your_own.Network)


def test_three_lines_of_python_audit_a_users_model_and_data(monkeypatch, tmp_path, capsys, bring_your_own):
    def quick_audit(setting):
        return audit(shortened(setting), out=tmp_path / "run", workers=1, quiet=True)

    monkeypatch.setattr(glasshouse, "audit", quick_audit, raising=False)
    ran = runpy.run_path(str(EXAMPLES / "bring_your_own.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() == str(tmp_path / "run" / "report.html")
    assert (tmp_path / "run" / "report.html").exists()
    findings = ran["results"].findings
    assert {finding.adversary for finding in findings} >= ADVERSARIES
    assert {finding.data for finding in findings} == {"bring_your_own:images"}
    assert {finding.model for finding in findings} == {"bring_your_own:Network"}


def test_the_same_from_the_command_line_with_two_workers(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    words = "audit", tmp_path / "tiny.toml", "--data", "bring_your_own:images"
    more = "--model", "bring_your_own:Network", "--out", tmp_path / "run", "--workers", "2", "--quiet"
    done = subprocess.run(
        [sys.executable, "-m", "glasshouse.cli", *words, *more],
        cwd=EXAMPLES,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()


def test_a_researchers_attack_is_compared_with_a_published_one(
    monkeypatch, tmp_path, capsys, research_attack
):
    def quick_audit(setting):
        return audit(shortened(setting), out=tmp_path / "run", workers=1, quiet=True)

    monkeypatch.setattr(glasshouse, "audit", quick_audit, raising=False)
    runpy.run_path(str(EXAMPLES / "research_attack.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["none", "loss-threshold"],
        ["none", "research_attack:Neighbourhood"],
    ]


def test_without_noise_the_researchers_attack_is_the_loss_threshold(research_attack):
    def probabilities(x):
        return torch.stack([x.flatten(1).mean(1), 1 - x.flatten(1).mean(1)], dim=1)

    rng = torch.Generator().manual_seed(0)
    images = Images(torch.rand(20, 1, 4, 4, generator=rng), torch.arange(20) % 2, classes=2)
    access, knowledge = QueryAccess(probabilities), Knowledge(images, images)
    mine = research_attack.Neighbourhood(copies=3, std=0.0).run(access, knowledge, rng)
    theirs = LossThreshold().run(access, knowledge, rng)
    np.testing.assert_allclose(mine.scores, theirs.scores)


def test_the_non_iid_example_is_the_setting_of_fed_fsnet():
    setting = read_setting(EXAMPLES / "non-iid.toml")
    training = setting.training
    assert (setting.data.name, setting.model.name) == ("fashion-mnist", "lenet")
    assert setting.data.clients * 2 == 200
    assert setting.data.members + setting.data.nonmembers + setting.data.auxiliary == 60000
    assert training == TrainingTable(rounds=50, fraction=0.1, epochs=10, batch_size=60, lr=0.01)


def test_the_non_iid_example_runs_in_miniature(tmp_path):
    setting = shortened(read_setting(EXAMPLES / "non-iid.toml"), name="digits", clients=20)
    results = audit(setting, out=tmp_path / "run", workers=1, quiet=True)
    assert {finding.adversary for finding in results.findings} >= ADVERSARIES
