"""Differential privacy in an audit: what was spent stands beside the accuracy, and bad budgets end it."""

import sys

import pytest
from torch import nn

from glasshouse import cli
from glasshouse.access import UpdateAccess
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.promised import promised
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.target import Variant, train_target
from glasshouse.errors import BadInput
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder


def setting(defence, observe=2, **training):
    return Setting(
        data={"clients": 4, "members": 80, "nonmembers": 20, "auxiliary": 20, "test": 20},
        model={"name": "mlp"},
        training={"rounds": 2, "batch_size": 10, **training},
        audit={"defences": [defence], "attacks": [], "curvature": 0, "central": False, "observe": observe},
    )


def target(tmp_path, defence, reads=(), **options):
    experiment = prepare(setting(defence, **options))
    folder = RunFolder(tmp_path / "run", experiment.config(), experiment.origin)
    with Engine(1) as engine:
        return train_target(
            experiment, folder, engine, Progress(quiet=True), Variant("fedavg", defence), reads
        )


@pytest.mark.parametrize(
    ("defence", "metric", "steps"),
    [
        ("dp-sgd(target_epsilon=4.0)", "epsilon-spent-record", 4),
        ("differential-privacy(target_epsilon=4.0,delta=1e-4)", "epsilon-spent-client", 2),
    ],
)
def test_what_was_spent_is_a_finding(tmp_path, defence, metric, steps):
    made = target(tmp_path, defence)
    epsilon, delta = promised(made)
    (promise,) = made.case.promises
    assert (epsilon.family, epsilon.metric, epsilon.n) == ("privacy", metric, steps)
    assert (epsilon.adversary, epsilon.attack, epsilon.defence) == (None, None, defence)
    assert epsilon.value == promise.epsilon == pytest.approx(4.0, rel=0.01)
    assert (delta.metric, delta.value) == ("delta", promise.delta)
    for word in ("noise multiplier", "delta", "accountant", "is public"):
        assert word in epsilon.note
    (settled,) = made.case.defence.defences
    assert settled.noise == promise.noise
    assert repr(promise.noise) in made.settled
    assert "target_epsilon" not in made.settled


def test_an_early_stop_spends_what_was_planned(tmp_path):
    made = target(tmp_path, "dp-sgd(noise=1.0)", rounds=7, target_accuracy=0.01)
    assert made.rounds < 7
    assert made.case.promises[0].steps == 7 * 2


def test_without_noise_nothing_is_promised(tmp_path):
    epsilon, _ = promised(target(tmp_path, "differential-privacy(noise=0)"))
    assert epsilon.value is None
    assert "no epsilon is promised" in epsilon.reason


def test_other_defences_promise_nothing(tmp_path):
    assert promised(target(tmp_path, "pruning")) == []


def test_rounds_for_which_nobody_was_drawn_are_not_observed(tmp_path):
    made = target(
        tmp_path,
        "differential-privacy(noise=1.0)",
        [UpdateAccess],
        rounds=12,
        fraction=0.25,
        observe=12,
    )
    assert 0 < len(made.case.rounds) < 12
    assert all(observed.delivery.clients for observed in made.case.rounds)


@pytest.mark.parametrize(
    ("defence", "words"),
    [
        ("dp-sgd(target_epsilon=1e-7)", "is out of reach"),
        ("differential-privacy(delta=0)", "delta = 0 is out of range"),
        ("dp-sgd(noise=1.0,target_epsilon=1.0)", "give one of them"),
    ],
)
def test_a_bad_budget_ends_the_command_with_one_line(tmp_path, monkeypatch, capsys, defence, words):
    config = tmp_path / "audit.toml"
    config.write_text(f'[audit]\ndefences = ["{defence}"]\n')
    out = str(tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["glasshouse", "audit", str(config), "--out", out, "--quiet"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert words in line


def test_batch_norm_is_refused_before_anything_is_trained():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))
    with pytest.raises(BadInput, match=r"dp-sgd covers no batch norm.*group norm"):
        prepare(setting("dp-sgd"), model=network)
