"""What other code made is not taken for this code's, and what a passing fault stopped is done later."""

import errno
import os
import sys
from pathlib import Path

import pytest
from timeless import timeless

from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import make_setting
from glasshouse.errors import Fault
from glasshouse.provenance import digest_of_types, own_code, work_name

LAB = """
from torch import nn, rand
from sklearn.datasets import load_digits
from glasshouse.attacks.membership.threshold import LossThreshold
from glasshouse.defences.perturbation import Clipping
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.access import QueryAccess, UpdateAccess
import helper

class Attack(LossThreshold):
    def run(self, access, knowledge, rng):
        found = super().run(access, knowledge, rng)
        return MembershipScores(found.scores * helper.SIGN, found.decisions)

class Reader(LossThreshold):
    # asks the model, or counts the clients of the rounds that it reads
    needs = (QueryAccess if helper.SIGN > 0 else UpdateAccess,)

    def run(self, access, knowledge, rng):
        if helper.SIGN > 0:
            return super().run(access, knowledge, rng)
        scores = knowledge.candidates.x.sum((1, 2, 3)).numpy()
        return MembershipScores(scores, scores > sum(len(seen.updates) for seen in access.rounds))

class Defence(Clipping):
    def on_update(self, delta, layout, rng):
        return helper.SIGN * super().on_update(delta, layout, rng)

class Strategy(FedAvg):
    def combine(self, server, delivery):
        return server.vector + helper.SIGN * delivery.mean, {}

class Network(nn.Sequential):
    def forward(self, x):
        return helper.SIGN * super().forward(x)

def network(shape, classes):
    return Network(nn.Flatten(), nn.Linear(64, classes))

def data():
    x, y = load_digits(return_X_y=True)
    x = (x / 16).reshape(-1, 8, 8)
    return (x if helper.SIGN > 0 else 1 - x), y
"""

SMALL = {
    "data": {"clients": 2, "members": 60, "nonmembers": 60, "auxiliary": 60, "test": 60},
    "model": {"name": "mlp"},
    "training": {"rounds": 1, "lr": 0.5, "epochs": 3},
    "audit": {"attacks": ["loss-threshold"], "defences": [], "central": False, "curvature": 0},
}


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A function that writes the user's code with a sign that decides its numbers, as if it ran anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(sign):
        (tmp_path / "helper.py").write_text(f"SIGN = {sign}\n")
        (tmp_path / "lab.py").write_text(LAB)
        for name in ("lab", "helper"):
            sys.modules.pop(name, None)

    yield write
    for name in ("lab", "helper"):
        sys.modules.pop(name, None)


def run(setting, out):
    findings = run_audit(make_setting(setting), out=out, workers=1, quiet=True).findings
    return [(row.defence, row.attack, row.metric, row.value, row.low) for row in timeless(findings)]


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("audit", "attacks", ["lab:Attack"]),
        ("audit", "defences", ["lab:Defence(norm=5.0)"]),
        ("training", "strategy", "lab:Strategy"),
        ("model", "name", "lab:network"),
        ("data", "name", "lab:data"),
    ],
)
def test_numbers_follow_the_users_code_when_it_is_edited(lab, tmp_path, table, key, value):
    setting = SMALL | {table: SMALL[table] | {key: value}}
    lab(+1)
    first = run(setting, tmp_path / "run")
    assert run(setting, tmp_path / "run") == first
    lab(-1)
    edited = run(setting, tmp_path / "run")
    assert edited != first
    assert edited == run(setting, tmp_path / "fresh")
    lab(+1)
    assert run(setting, tmp_path / "run") == first


def test_an_edited_attack_leaves_the_training_and_other_attacks_as_they_are(lab, tmp_path, capfd):
    setting = SMALL | {"audit": SMALL["audit"] | {"attacks": ["gap", "lab:Attack"]}}
    lab(+1)
    run_audit(make_setting(setting), out=tmp_path / "run", workers=1, quiet=True)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "run" / "work").rglob("*.*")}
    lab(-1)
    capfd.readouterr()
    run_audit(make_setting(setting), out=tmp_path / "run", workers=1)
    assert "lab:Attack changed since the run in" in capfd.readouterr().err
    assert {file: file.stat().st_mtime_ns for file in kept} == kept


@pytest.mark.parametrize("others", [[], ["label-counts"]])
def test_an_attack_that_reads_more_than_before_finds_it_in_the_record(lab, tmp_path, others):
    setting = SMALL | {"audit": SMALL["audit"] | {"attacks": ["gap", *others, "lab:Reader"]}}
    lab(+1)
    run(setting, tmp_path / "run")
    trained = (tmp_path / "run" / "work" / "none" / "latest.safetensors").stat().st_mtime_ns
    lab(-1)
    edited = run(setting, tmp_path / "run")
    assert edited == run(setting, tmp_path / "fresh")
    assert [value for _, attack, metric, value, _ in edited if (attack, metric) == ("lab:Reader", "auc")]
    again = (tmp_path / "run" / "work" / "none" / "latest.safetensors").stat().st_mtime_ns != trained
    assert again == (not others)


def test_a_digest_covers_what_the_code_imports_and_nothing_that_is_installed(lab):
    lab(+1)
    digest = own_code(["lab:Attack(x=1)", "loss-threshold"])
    assert list(digest) == ["lab:Attack"]
    lab(-1)
    assert own_code(["lab:Attack"]) != digest
    assert work_name("loss-threshold", ["loss-threshold"]) == "loss-threshold"
    import lab as users

    assert digest_of_types([users.Network])
    assert not digest_of_types([dict, users.nn.Linear])


def test_a_full_disk_while_shadows_are_trained_is_no_finding(tmp_path, monkeypatch):
    setting = SMALL | {"audit": SMALL["audit"] | {"attacks": ["lira"], "shadows": 2}}
    whole = run(setting, tmp_path / "whole")
    replace, written = os.fsync, []

    def full(handle):
        written.append(handle)
        if "shadows" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(handle)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(Fault, match="No space left on device"):
            run(setting, tmp_path / "run")
    assert written
    assert run(setting, tmp_path / "run") == whole
