"""A configuration alone runs no code: whatever it names, wherever, the command ends with one line."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from glasshouse import Setting, audit
from glasshouse.cli import app
from glasshouse.errors import BadInput

SMALL = {"clients": 2, "members": 40, "nonmembers": 40, "auxiliary": 40, "test": 40}
COMMAND = "os:system(command='touch ran')"
PLACES = {
    "attack": f'[audit]\nattacks = ["{COMMAND}"]',
    "defence": f'[audit]\ndefences = ["{COMMAND}"]',
    "chained defence": f'[audit]\ndefences = ["clipping(norm=1.0)+{COMMAND}"]',
    "strategy": f'[training]\nstrategy = "{COMMAND}"',
    "channel": f'[training]\nchannel = "{COMMAND}"',
    "partition": f'[data]\npartition = "{COMMAND}"',
    "model": '[model]\nname = "os:abort"',
    "data": '[data]\nname = "os:abort"',
}


@pytest.mark.parametrize("place", PLACES)
def test_a_configuration_alone_runs_no_command(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.toml").write_text(PLACES[place])
    ended = CliRunner().invoke(app, ["audit", "given.toml", "--quiet"])
    assert isinstance(ended.exception, BadInput)
    assert "\n" not in str(ended.exception)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "spec", ["pgd(eps={[]:1})", f"pgd(eps={'-' * 100_000}1)", "pgd(**x)", "pgd(eps=1e999)"]
)
def test_a_spec_that_cannot_be_read_ends_the_command_with_one_line_and_code_2(spec, tmp_path):
    (tmp_path / "given.toml").write_text(f"[audit]\nattacks = ['''{spec}''']")
    ended = subprocess.run(
        [sys.executable, "-m", "glasshouse.cli", "audit", "given.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("glasshouse: ")
    assert ended.stderr.count("\n") == 1
    assert len(ended.stderr) < 400


def test_an_audit_says_which_module_of_the_users_it_imported(tmp_path):
    (tmp_path / "lab_of_mine.py").write_text(
        "from glasshouse.attacks.membership.threshold import LossThreshold as Mine\n"
    )
    sizes = "\n".join(f"{name} = {size}" for name, size in SMALL.items())
    (tmp_path / "given.toml").write_text(
        f"[data]\n{sizes}\n[training]\nrounds = 1\n[audit]\nattacks = ['lab_of_mine:Mine']\n"
        "defences = []\ncentral = false\ncurvature = 0\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "glasshouse.cli", "audit", "given.toml", "--workers", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    said = [line for line in ended.stderr.splitlines() if "lab_of_mine" in line]
    assert said == [f"imported lab_of_mine from {tmp_path / 'lab_of_mine.py'}, which ran its code"]


TIED = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(self.first(x.flatten(1)).relu()).relu())
"""


def test_a_network_with_tied_weights_is_audited_and_its_run_goes_on(tmp_path, monkeypatch):
    name = f"tied_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(TIED)
    monkeypatch.chdir(tmp_path)
    setting = Setting(
        data=SMALL,
        model={"name": f"{name}:Net"},
        training={"rounds": 1},
        audit={"attacks": ["gap"], "defences": [], "central": False, "curvature": 0, "shadows": 0},
    )
    first, again = (audit(setting, out=tmp_path / "run", workers=1, quiet=True).findings for _ in range(2))
    assert [finding.value for finding in first] == [finding.value for finding in again]
    warm = setting.model_copy(
        update={"model": setting.model.model_copy(update={"weights": "run/weights/none.safetensors"})}
    )
    audit(warm, out=tmp_path / "warm", workers=1, quiet=True)
