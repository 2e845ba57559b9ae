"""A finished model, audited as it is, and several seeds in one audit."""

import json

import numpy as np
import pytest
import torch
from conftest import make_images, make_model, make_plain_model
from safetensors.torch import save_file
from timeless import timeless
from torch import nn

from glasshouse import BadInput, Setting, audit, cli
from glasshouse.attacks import ATTACKS
from glasshouse.auditing.finished import ADVERSARIES, finished_setting
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import make_setting
from glasshouse.learning.layout import read_vector
from glasshouse.measures.membership import auc
from glasshouse.models.loading import reinitialised
from glasshouse.verdicts.pooling import pooled

QUICK = make_setting({"audit": {"attacks": ["loss-threshold", "gap", "lira-online", "fgsm"], "shadows": 4}})


@pytest.fixture(scope="module")
def trained():
    """A network that knows its 60 members by heart: their labels are drawn at random."""
    images = make_images(200)
    y = torch.randint(0, 4, (200,), generator=torch.Generator().manual_seed(1))
    model = make_plain_model()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images.x[:60]), y[:60]).backward()
        optimiser.step()
    parts = {"members": slice(60), "nonmembers": slice(60, 120), "auxiliary": slice(120, None)}
    return model, {name: (images.x[part].numpy(), y[part].numpy()) for name, part in parts.items()}


@pytest.fixture(scope="module")
def results(trained, tmp_path_factory):
    model, parts = trained
    before = read_vector(model)
    done = run_audit(
        QUICK, model=model, parts=parts, out=tmp_path_factory.mktemp("finished") / "run", workers=1
    )
    assert torch.equal(read_vector(model), before)
    return done


def value(findings, attack, metric):
    (row,) = [row for row in findings if (row.attack, row.metric) == (attack, metric)]
    return row.value


def test_what_each_attack_says_of_each_record_of_a_finished_model_is_kept(results, trained):
    kept = results.scores("loss-threshold")
    assert auc(kept["score"], kept["member"]).value == value(results.findings, "loss-threshold", "auc")
    assert set(kept["record"][kept["member"]]) == set(range(60))  # the pool begins with the members
    (accuracy,) = [one for one in results.records if one.table == "accuracy"]
    assert set(accuracy["record"]) == set(range(60, 120))
    assert accuracy["hit"].mean() == value(results.findings, None, "test-accuracy")


def test_what_a_finished_model_has_learned_by_heart_shows(results, trained):
    assert value(results.findings, "loss-threshold", "auc") > 0.85
    model, parts = trained
    x, y = (torch.from_numpy(array) for array in parts["nonmembers"])
    right = (model(x).argmax(1) == y).double().mean().item()
    assert value(results.findings, None, "test-accuracy") == pytest.approx(right)
    assert value(results.findings, "fgsm", "clean-accuracy") == pytest.approx(right)


def test_only_the_outsider_and_the_owner_attack_a_finished_model(results):
    tried = {row.adversary for row in results.findings if row.adversary}
    assert tried == {access.adversary for access in ADVERSARIES}
    assert {row.strategy for row in results.findings} == {None}
    assert all(row.value is not None for row in results.findings if row.metric == "auc")


def test_every_attack_of_the_outsider_and_the_owner_runs_unless_a_setting_says_otherwise():
    able = [name for name in ATTACKS if set(ATTACKS.make(name).needs) & set(ADVERSARIES)]
    assert sorted(spec.partition("(")[0] for spec in finished_setting().audit.attacks) == sorted(able)


def test_without_auxiliary_images_the_attacks_that_need_them_say_so(trained, tmp_path):
    model, parts = trained
    left = {name: part for name, part in parts.items() if name != "auxiliary"}
    findings = run_audit(QUICK, model=model, parts=left, out=tmp_path / "run", workers=1).findings
    (missing,) = [row for row in findings if row.metric == "not-applicable"]
    assert missing.attack == "loss-threshold"
    assert "auxiliary" in missing.reason
    assert value(findings, "lira-online", "auc") is not None


def test_an_image_in_two_files_stays_with_the_members(trained, tmp_path):
    model, parts = trained
    (x, y), (others, labels) = parts["members"], parts["nonmembers"]
    mixed = np.concatenate([others, x[:10]]), np.concatenate([labels, y[:10]])
    doubled = parts | {"nonmembers": mixed}
    done = run_audit(QUICK, model=model, parts=doubled, out=tmp_path / "run", workers=1)
    assert "10 images are copies of others" in (done.folder / "config.toml").read_text()
    once = run_audit(QUICK, model=model, parts=parts, out=tmp_path / "once", workers=1)
    assert value(done.findings, "gap", "auc") == value(once.findings, "gap", "auc")


def test_a_network_that_is_handed_over_draws_fresh_weights_for_its_shadows():
    model = make_model()
    one, same, other = (read_vector(reinitialised(model, seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one, read_vector(model))


def test_a_network_with_weights_of_its_own_making_is_refused_with_a_remedy():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))
            self.layers = make_plain_model()

        def forward(self, x):
            return self.scale * self.layers(x)

    with pytest.raises(BadInput, match=r"draw scale anew.*factory"):
        reinitialised(Scaled(), 0)


@pytest.fixture
def files(trained, tmp_path):
    model, parts = trained
    for name, (x, y) in parts.items():
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    (tmp_path / "my_networks.py").write_text("from conftest import make_plain_model as network\n")
    return tmp_path


def command(monkeypatch, folder, *words):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["glasshouse", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code or 0


def test_the_command_audits_a_finished_model_and_its_page_names_who_was_not_tried(files, monkeypatch, capsys):
    (files / "quick.toml").write_text('[audit]\nattacks = ["loss-threshold", "gap"]\ncurvature = 0\n')
    words = ["audit", "quick.toml", "--model", "my_networks:network", "--weights", "weights.safetensors"]
    words += ["--members", "members.npz", "--nonmembers", "nonmembers.npz", "--auxiliary", "auxiliary.npz"]
    assert command(monkeypatch, files, *words, "--workers", 1, "--out", "out", "-q") == 0
    assert capsys.readouterr().out.strip() == "out"
    page = (files / "out" / "report.html").read_text()
    assert "What this model gives away" in page
    assert "curious server, blind server, blind crafting server, crafting server" in page
    rows = json.loads((files / "out" / "results.json").read_text())
    assert max(row["value"] for row in rows if row["metric"] == "auc") > 0.85


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--members", "members.npz"], "give nonmembers too"),
        (["--members", "members.npz", "--nonmembers", "nonmembers.npz"], "needs its weights"),
        (["--members", "members.npz", "--nonmembers", "other.npz"], "no such file"),
        (["--members", "members.png", "--nonmembers", "nonmembers.npz"], "cannot be read"),
        (["--members", "members.npz", "--nonmembers", "nonmembers.npz", "--data", "mnist"], "--data mnist"),
    ],
)
def test_what_is_missing_is_named_in_one_line(files, monkeypatch, capsys, words, message):
    assert command(monkeypatch, files, "audit", *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


SEEDED = {
    "data": {"name": "digits", "clients": 2, "members": 60, "nonmembers": 60, "auxiliary": 20, "test": 60},
    "model": {"name": "mlp"},
    "training": {"rounds": 1, "local_test": 0},
    "audit": {"attacks": ["gap"], "defences": [], "central": False, "curvature": 0},
}


def test_several_seeds_are_those_of_single_audits_and_are_pooled(tmp_path):
    several = run_audit(make_setting(SEEDED), seeds=3, out=tmp_path / "several", workers=1).findings
    single = [
        run_audit(make_setting(SEEDED | {"seed": seed}), out=tmp_path / str(seed), workers=1).findings
        for seed in range(3)
    ]
    assert timeless(several) == timeless(sum(single, ()))
    (area,) = [measure for measure in pooled(several) if measure.row.metric == "auc"]
    assert len(area.values) == 3
    assert area.value == pytest.approx(np.mean(area.values))
    assert area.low < area.value < area.high


def test_more_seeds_are_added_to_what_is_there(tmp_path):
    setting = make_setting(SEEDED)
    first = run_audit(setting, out=tmp_path / "run", workers=1).findings
    more = run_audit(setting, seeds=2, out=tmp_path / "run", workers=1).findings
    assert more[: len(first)] == first
    assert {row.seed for row in more} == {0, 1}


def test_an_audit_from_python_takes_a_live_network(trained, tmp_path):
    model, parts = trained
    setting = Setting(audit={"attacks": ("gap",), "curvature": 0})
    done = audit(setting, model=model, **parts, out=tmp_path / "run", workers=1, quiet=True)
    assert done.report.exists()
