import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import glasshouse
from glasshouse import BadInput, Setting, audit, audit_record
from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.membership.threshold import LossThreshold
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import TrainingTable, read_setting
from glasshouse.data.images import Images
from glasshouse.learning.layout import Layout
from glasshouse.models.loading import load_model
from glasshouse.recording.reader import read_recording
from glasshouse.report import write_report

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
def twelve_hospitals(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    yield __import__("twelve_hospitals")
    sys.modules.pop("twelve_hospitals")


@pytest.fixture
def compare_attacks(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    yield __import__("compare_attacks")
    sys.modules.pop("compare_attacks")


@pytest.fixture
def pretrained_head(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield __import__("pretrained_head")
    torch.set_num_threads(threads)
    sys.modules.pop("pretrained_head")


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


def test_a_researchers_attack_and_defence_are_compared_with_published_ones_over_three_seeds(
    monkeypatch, tmp_path, capsys, compare_attacks
):
    def quick_audit(setting, seeds):
        small = shortened(setting, members=40, nonmembers=40, auxiliary=40, test=40)
        audited = small.audit.model_copy(update={"defences": setting.audit.defences, "shadows": 4})
        small = small.model_copy(update={"audit": audited})
        return run_audit(small, seeds=seeds, out=tmp_path / "run", workers=1, quiet=True)

    monkeypatch.setattr(glasshouse, "audit", quick_audit, raising=False)
    ran = runpy.run_path(str(EXAMPLES / "compare_attacks.py"), run_name="__main__")
    results, mine = ran["results"], compare_attacks.MINE
    assert {finding.seed for finding in results.findings} == {0, 1, 2}
    *lines, page = capsys.readouterr().out.splitlines()
    assert page == str(results.report)
    count = 3 * 5  # published attacks on the undefended federation and behind each defence
    of_attacks, of_defence = lines[:count], lines[count:]
    assert [line for line in of_attacks if mine not in line] == []
    assert all("paired, n = 240" in line for line in of_attacks)  # 80 candidates with each of three seeds
    assert len(of_defence) == 4 * (4 + 1)  # no defence and three published ones, for each attack and accuracy
    assert all(compare_attacks.MY_DEFENCE in line for line in of_defence)
    assert of_defence[-1].startswith("test accuracy: ")
    assert "paired, n = 120" in of_defence[-1]


def test_a_pretrained_network_gets_a_new_head_and_clients_train_that_alone_or_all(
    monkeypatch, tmp_path, capsys, pretrained_head
):
    runs = []

    def quick_audit(setting):
        name = setting.data.name
        runs.append(
            run_audit(shortened(setting, name=name), out=tmp_path / str(len(runs)), workers=1, quiet=True)
        )
        return runs[-1]

    monkeypatch.setattr(glasshouse, "audit", quick_audit, raising=False)
    runpy.run_path(str(EXAMPLES / "pretrained_head.py"), run_name="__main__")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[-1] for line in lines if line[0] == "clients"] == ["head.*", "all"]
    sent = [float(line[1]) for line in lines if line[0] == "bytes-up"]
    network = pretrained_head.Network((1, 8, 8), 4, pretrained_head.WIDTH)
    assert sent[0] == 4 * sum(part.numel() for part in network.head.parameters())
    assert sent[1] == 4 * Layout.of(network).size
    for run in runs:
        assert "the last layer head (4x128) does not fit the file" in (run.folder / "config.toml").read_text()
    assert "The last layer head (4x128)" in write_report(runs[0].folder).read_text()
    head_only, whole = ({f.metric for f in run.findings if f.value is not None} for run in runs)
    assert head_only == whole >= {"test-accuracy", "auc", "source-accuracy"}
    accuracy = next(f.value for f in runs[0].findings if f.metric == "test-accuracy")
    assert accuracy > 0.5  # the frozen features of other digits are of use


def test_the_researchers_defence_moves_pixels_and_stays_in_range(compare_attacks):
    x = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    noisy = compare_attacks.NoisyImages(std=0.3).on_batch(x, torch.Generator().manual_seed(1))
    assert 0 <= noisy.min() <= noisy.max() <= 1
    assert ((noisy - x).abs() > 0.01).float().mean() > 0.8
    assert torch.equal(compare_attacks.NoisyImages(std=0.0).on_batch(x, torch.Generator()), x)


def test_without_noise_the_researchers_attack_is_the_loss_threshold(compare_attacks):
    def probabilities(x):
        return torch.stack([x.flatten(1).mean(1), 1 - x.flatten(1).mean(1)], dim=1)

    rng = torch.Generator().manual_seed(0)
    images = Images(torch.rand(20, 1, 4, 4, generator=rng), torch.arange(20) % 2, classes=2)
    access, knowledge = QueryAccess(probabilities), Knowledge(images, images)
    mine = compare_attacks.Neighbourhood(copies=3, std=0.0).run(access, knowledge, rng)
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
    attacks = ("loss-threshold", "fgsm(eps=0.1)", "label-counts", "saturated-head")
    few = {"attacks": attacks, "curvature": 0, "adaptive": False}
    setting = setting.model_copy(update={"audit": setting.audit.model_copy(update=few)})
    results = audit(setting, out=tmp_path / "run", workers=1, quiet=True)
    assert {finding.adversary for finding in results.findings} >= ADVERSARIES


def test_a_federation_in_plain_pytorch_is_recorded_and_audited(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    ran = runpy.run_path(str(EXAMPLES / "record_plain_pytorch.py"), run_name="__main__")
    parts = {name: f"{name}.npz" for name in ("members", "nonmembers", "auxiliary")}
    attacks = ("loss-threshold", "source-inference", "label-counts", "gradient-alignment")
    results = audit_record(
        "rounds",
        Setting(audit={"attacks": attacks, "curvature": 0}),
        model="record_plain_pytorch:Network",
        out="run",
        workers=1,
        quiet=True,
        **parts,
    )
    values = {(f.adversary, f.attack, f.metric): f.value for f in results.findings}
    network = ran["Network"]()
    network.load_state_dict(load_file("rounds/final.safetensors"))
    held_out = np.load("nonmembers.npz")
    right = network(torch.from_numpy(held_out["x"])).argmax(1).numpy() == held_out["y"]
    assert values[None, None, "test-accuracy"] == pytest.approx(right.mean())
    assert right.mean() > 0.7
    for adversary in ("curious server", "blind server"):
        assert values[adversary, "gradient-alignment", "auc"] > 0.5
    assert values["curious server", "source-inference", "source-accuracy"] > 0.25
    sys.modules.pop("record_plain_pytorch")


@pytest.mark.parametrize("lost", [1, 2, 11])
def test_a_round_that_the_plain_recorder_wrote_and_that_is_lost_is_found_out(tmp_path, lost):
    ran = runpy.run_path(str(EXAMPLES / "record_plain_pytorch.py"))
    weights = {"weight": torch.zeros(2, 3)}
    ran["begin"](tmp_path / "r")
    for number in range(1, 12):
        ran["write_round"](tmp_path / "r", number, weights, [("Aare", 60, weights), ("Birs", 60, weights)])
    ran["finish"](tmp_path / "r", weights, 11)
    assert len(read_recording(tmp_path / "r").rounds) == 11
    shutil.rmtree(tmp_path / "r" / "rounds" / f"{lost:04d}")
    with pytest.raises(BadInput, match=f"follows round {lost}, which is missing"):
        read_recording(tmp_path / "r")


def test_the_plain_recorder_needs_no_glasshouse():
    code = "import record_plain_pytorch, sys; sys.exit('glasshouse' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, check=True)


def test_twelve_hospitals_are_audited_as_they_are(monkeypatch, tmp_path, capsys, twelve_hospitals):
    def quick_audit(setting):
        changes = {
            "training": {"rounds": 1, "epochs": 1},
            "audit": {"central": False, "defences": (), "curvature": 0},
        }
        tables = {name: getattr(setting, name).model_copy(update=table) for name, table in changes.items()}
        return audit(setting.model_copy(update=tables), out="run", workers=1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(glasshouse, "audit", quick_audit, raising=False)
    runpy.run_path(str(EXAMPLES / "twelve_hospitals.py"), run_name="__main__")
    said = capsys.readouterr()
    assert said.out.strip() == "run/report.html"
    told = " ".join(said.err.split())  # lines are folded at the terminal's width
    assert "12 clients as the data name them, with 27 (Limmat) to 151 (Aare) training images" in told
    assert "Held out as the data say: 451 non-members" in told
    (division,) = json.loads(Path("run/curves.json").read_text())["division"]
    drawn = twelve_hospitals.hospitals()
    keys = {"members": "member", "nonmembers": "non-member", "auxiliary": "auxiliary", "test": "test"}
    for holder, name in zip(division["holders"], twelve_hospitals.SIZES, strict=True):
        marks = drawn["part"][drawn["client"] == name].tolist()
        assert holder["name"] == name
        assert {key: holder[key] for key in keys} == {key: marks.count(mark) for key, mark in keys.items()}
    page = Path("run/report.html").read_text()
    assert "12 (27 to 151 images)" in page
    assert all(f"<td>{name}</td>" in page for name in twelve_hospitals.SIZES)
