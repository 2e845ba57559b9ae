import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from timeless import timeless_rows

from glasshouse import Setting, audit
from glasshouse.auditing.adapting import adaptive_forms
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import as_toml, make_setting, read_setting
from glasshouse.store import slug

TINY = {
    "data": {
        "clients": 4, "partition": "dirichlet(alpha=0.5)",
        "members": 240, "nonmembers": 160, "auxiliary": 240, "test": 160,
    },
    "model": {"name": "mlp"},
    "training": {"rounds": 3, "fraction": 0.5, "epochs": 1, "batch_size": 16, "lr": 0.1},
    "audit": {
        "defences": ["pruning(fraction=0.95)", "clipping(norm=1.0)+gaussian-noise(std=0.01)"],
        "observe": 2,
        "shadows": 4,
        "curvature": 60,
        "seconds": 0.4,
    },
}  # fmt: skip


SHADOWED = ("mia-bad", "lira", "rmia", "bavaria", "stacked")
"""The attacks by default that train shadow models."""

WITHOUT_A_BLIND_GUESS = {
    "clean-accuracy",
    "clean-accuracy-over-central",
    "robust-accuracy-over-central",
    "top-eigenvalue",
    "psnr-of-recovered",
    "mean-image-psnr",
    "mean-image-recovery-rate",
    "single-guess-psnr",
    "single-guess-recovery-rate",
    "offline-seconds",
    "online-seconds",
    "bytes-up",
    "bytes-down",
    "training-seconds",
    "vet-alarm",
}


def without_seconds(folder: Path) -> list[dict]:
    return timeless_rows(json.loads((folder / "results.json").read_text()))


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    return audit(make_setting(TINY), out=tmp_path_factory.mktemp("audit") / "run", workers=1, quiet=True)


def test_every_adversary_meets_every_defence_and_every_defence_has_its_price(tiny_run):
    attacked = [row for row in tiny_run.findings if row.adversary and row.family != "ladder"]
    met = {(row.adversary, row.attack, row.defence) for row in attacked}
    servers = ("curious server", "blind server")
    pairs = {
        *(("outsider", attack) for attack in ("loss-threshold", "gap", *SHADOWED)),
        *(
            (server, attack)
            for server in servers
            for attack in (
                "lira",
                "bavaria",
                "stacked",
                "loss-trajectory",
                "gradient-alignment",
                "strongest-inversion(seconds=0.2)",
            )
        ),
        ("curious server", "source-inference"),
        *(("owner", attack) for attack in Setting().audit.attacks if "(eps=" in attack),
        ("curious server", "label-counts"),
        ("blind server", "label-counts"),
        ("crafting server", "saturated-head"),
        ("blind crafting server", "scale-mia-peeled(steps=3000,rounds=4)"),
    }
    defences = {"none", *TINY["audit"]["defences"]}
    adaptive = "strongest-inversion(seconds=0.2,adaptive=True)"
    informed = {
        (server, adaptive, defence)
        for server in servers
        for defence in defences
        if adaptive_forms(["dlg"], defence)
    }
    assert len(informed) == 2 * len(TINY["audit"]["defences"])
    informed |= {
        (adversary, f"{attack}(adaptive=True)", defence)
        for adversary, attack in pairs
        for defence in defences - {"none"}
        if attack in SHADOWED or (attack == "saturated-head" and "noise" in defence)
    }
    assert met == {(*pair, defence) for pair in pairs for defence in defences} | informed
    priced = {row.defence for row in tiny_run.findings if row.metric == "test-accuracy"}
    assert priced == defences


def test_every_number_has_its_n_its_chance_and_what_it_assumes(tiny_run):
    for row in tiny_run.findings:
        assert row.n is not None
        assert (row.reason is None) == (row.value is not None)
        assert row.chance is not None or row.metric in WITHOUT_A_BLIND_GUESS
        assert row.seed == 0
        if row.value is not None and row.low is not None:
            assert row.low <= row.value
            assert (
                row.high is None
                if row.metric in ("epsilon", "epsilon-delta-lower-bound")
                else row.value <= row.high
            )
    told = {row.attack: row.assumes for row in tiny_run.findings if row.attack}
    assert "auxiliary" in " ".join(told["loss-threshold"])
    assert "auxiliary" not in " ".join(told["gap"])
    crafted = [row for row in tiny_run.findings if row.attack == "saturated-head"]
    assert all(row.assumes == () for row in crafted)
    peeled = [
        row
        for row in tiny_run.findings
        if (row.attack or "").startswith("scale-mia") and row.value is not None
    ]
    assert all("secure aggregation" in " ".join(row.assumes) for row in peeled if row.metric != "vet-alarm")
    blind = [row for row in tiny_run.findings if row.adversary == "blind server" and row.value is not None]
    assert all("an ideal channel" in " ".join(row.assumes) for row in blind)


def test_inversions_say_how_the_attacked_clients_trained_and_in_which_rounds(tiny_run):
    rates = [
        row
        for row in tiny_run.findings
        if row.metric == "recovery-rate" and (row.attack or "").startswith("strongest-inversion(seconds=0.2")
    ]
    assert {row.adversary for row in rates} == {"curious server", "blind server"}
    for row in rates:
        assert row.note.startswith("as the clients trained: ")
        assert "train mode, labels unknown" in row.note
        assert "round 1, " in row.note
        assert "round 3, " in row.note


def test_the_ladder_stands_apart_from_the_answers(tiny_run):
    ladder = [row for row in tiny_run.findings if row.family == "ladder"]
    assert {row.cell for row in ladder} == {
        "ladder/upper-bound",
        "ladder/labels-unknown",
        "ladder/batch",
        "ladder/local-steps",
        *(f"ladder/defended/{defence}" for defence in TINY["audit"]["defences"]),
    }
    page = tiny_run.report.read_text()
    assert 'id="ladder"' in page
    assert "This model falls on the rung" in page or "the top rung" in page or "Not even on the rung" in page


def test_a_client_that_vets_would_have_noticed_the_crafted_models(tiny_run):
    alarms = {row.attack: row for row in tiny_run.findings if row.metric == "vet-alarm"}
    assert set(alarms) == {"saturated-head", "scale-mia-peeled(steps=3000,rounds=4)"}
    for row in alarms.values():
        assert row.family == "vetting"
        assert row.value == 1
        assert row.note
        assert row.assumes == ()


def test_the_folder_holds_what_the_documentation_promises(tiny_run):
    names = {path.name for path in tiny_run.folder.iterdir()}
    assert names >= {
        "results.json", "results.csv", "report.html", "figures", "config.toml", "curves.json",
        "environment.json", "weights", "work",
    }  # fmt: skip
    assert not [path for path in tiny_run.folder.rglob("*") if path.suffix in {".pt", ".pkl", ".pickle"}]


def test_the_written_configuration_runs_again(tiny_run, tmp_path):
    assert as_toml(read_setting(tiny_run.folder / "config.toml")) == as_toml(make_setting(TINY))


def test_the_numbers_do_not_depend_on_the_number_of_workers(tiny_run, tmp_path):
    again = run_audit(make_setting(TINY), out=tmp_path / "run", workers=4, quiet=True)
    assert without_seconds(again.folder) == without_seconds(tiny_run.folder)
    first, second = (json.loads((run.folder / "curves.json").read_text()) for run in (again, tiny_run))
    for point in (*first["course"], *second["course"]):
        point["seconds"] = None
    assert first == second


def test_files_of_different_defences_never_share_a_name():
    specs = ["none", "clipping(norm=1e+1)", "clipping(norm=1e-1)", "clipping(norm=1e1)"]
    assert len({slug(spec) for spec in specs}) == len(specs)
    assert slug("none") == "none"


def test_a_killed_audit_resumes_where_it_was_and_ends_with_the_same_numbers(tiny_run, tmp_path):
    config, out = tmp_path / "tiny.toml", tmp_path / "run"
    config.write_text(as_toml(make_setting(TINY)))
    command = [
        sys.executable,
        "-m",
        "glasshouse.cli",
        "audit",
        str(config),
        "--out",
        str(out),
        "--workers",
        "1",
    ]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    middle = out / "work" / slug("pruning(fraction=0.95)") / "latest.safetensors"
    deadline = time.monotonic() + 60
    while not middle.exists() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert middle.exists()
    assert not (out / "results.json").exists()
    done = {path: path.stat().st_mtime_ns for path in (out / "work" / "none").iterdir()}
    subprocess.run(command, check=True, capture_output=True)
    assert without_seconds(out) == without_seconds(tiny_run.folder)
    assert {path: path.stat().st_mtime_ns for path in done} == done


def test_an_attack_that_does_not_apply_leaves_a_null_with_its_reason(tmp_path):
    setting = make_setting(
        TINY
        | {
            "training": {"rounds": 1, "optimiser": "adam", "lr": 0.001},
            "audit": {"attacks": ["saturated-head"], "defences": [], "central": False, "curvature": 0},
        }
    )
    results = run_audit(setting, out=tmp_path / "run", workers=1, quiet=True)
    empty = [row for row in results.findings if row.attack == "saturated-head"]
    assert [row.value for row in empty] == [None]
    assert "adam" in empty[0].reason


def test_long_specs_have_files_and_a_page(tmp_path):
    eps = ",".join(f"0.{number}" for number in range(1, 60))
    chain = "+".join(f"clipping(norm={norm}.0)" for norm in range(1, 40))
    attacks = ["loss-threshold", f"fgsm(eps=({eps}))"]
    tables = {"attacks": attacks, "defences": [chain], "central": False, "curvature": 0}
    small = TINY | {"training": {"rounds": 1}, "audit": tables}
    results = audit(make_setting(small), out=tmp_path / "run", workers=1, quiet=True)
    assert results.report.exists()
    assert max(len(path.name) for path in results.folder.rglob("*")) < 200


@pytest.mark.real_data
@pytest.mark.slow
def test_fedavg_reaches_the_published_accuracy_on_mnist(tmp_path):
    setting = make_setting({
        "data": {"name": "mnist", "clients": 10, "members": 59000, "nonmembers": 500, "auxiliary": 500},
        "training": {"rounds": 5, "epochs": 1, "batch_size": 10, "lr": 0.05},
        "audit": {"attacks": [], "defences": [], "central": False},
    })  # fmt: skip
    results = audit(setting, out=tmp_path / "run", quiet=True)
    assert results.findings[0].value >= 0.96
    assert np.isfinite(results.findings[0].low)


def test_the_central_baseline_needs_no_secure_sums(tmp_path):
    setting = {
        "data": {
            "name": "digits",
            "members": 60,
            "nonmembers": 40,
            "auxiliary": 40,
            "test": 40,
            "clients": 3,
        },
        "model": {"name": "mlp"},
        "training": {"rounds": 1, "channel": "secure"},
        "audit": {"attacks": ["loss-threshold"], "defences": [], "curvature": 0},
    }
    results = run_audit(make_setting(setting), out=tmp_path / "run", workers=1, quiet=True)
    accuracies = [row.strategy for row in results.findings if row.metric == "test-accuracy"]
    assert accuracies == ["central", "fedavg"]


def test_behind_secure_sums_and_vetting_clients_servers_are_told_why_they_learn_nothing(tmp_path):
    values = {
        "data": {"clients": 3, "members": 60, "nonmembers": 40, "auxiliary": 300, "test": 40},
        "model": {"name": "mlp"},
        "training": {"rounds": 1, "strategy": "fedsgd", "channel": "secure", "lr": 0.1},
        "audit": {
            "attacks": ["label-counts", "saturated-head", "scale-mia-peeled(rounds=1)"],
            "defences": ["vet"],
            "central": False,
        },
    }
    found = run_audit(make_setting(values), out=tmp_path / "run", workers=1, quiet=True).findings
    rows = {(row.adversary, row.attack, row.defence, row.metric): row for row in found}
    for server, attack in (("curious server", "label-counts"), ("crafting server", "saturated-head")):
        reason = rows[server, attack, "none", "not-applicable"].reason
        assert "no single update reaches the server" in reason
    rebuilt = rows["blind crafting server", "scale-mia-peeled(rounds=1)", "none", "recovery-rate"]
    assert rebuilt.value > 0.9
    assert rebuilt.n == 60
    refused = rows["blind crafting server", "scale-mia-peeled(rounds=1)", "vet", "recovery-rate"]
    assert refused.value == 0
    assert "every client refused the model" in refused.note
