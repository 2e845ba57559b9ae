"""Secure aggregation as a defence, and what defences cost in bytes and seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import access_to, finished
from conftest import make_model, make_plain_model, make_split

import glasshouse
from glasshouse.access import AggregateAccess, ServerAccess, UpdateAccess
from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.experiment import check_names, prepare
from glasshouse.auditing.grants import grant
from glasshouse.auditing.setting import make_setting
from glasshouse.defences import make_defences
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.federation import Federation, Plan, defended_channel
from glasshouse.federation.history import Record
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder
from glasshouse.verdicts.metrics import metric_words

DEFENCES = ("secure-aggregation", "more-local-steps(factor=2)", "early-stopping(patience=1)", "mix-up")
SETTING = {
    "data": {"clients": 3, "members": 45, "nonmembers": 30, "auxiliary": 60, "test": 30},
    "model": {"name": "mlp"},
    "training": {"rounds": 6, "batch_size": 15, "lr": 0.1, "local_test": 0},
    "audit": {
        "attacks": ["lira", "label-counts", "saturated-head"], "defences": list(DEFENCES), "shadows": 4,
        "curvature": 0, "ladder": False, "adaptive": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("spec", ["secure-aggregation", "secure-aggregation+clipping(norm=1.0)"])
def test_behind_secure_aggregation_no_server_sees_an_update(spec, engine):
    case = finished(engine, defence=spec)
    assert case.rounds[0].delivery.updates is None
    for access in (UpdateAccess, ServerAccess):
        with pytest.raises(CannotRun, match="no single update reaches the server: secure aggregation"):
            grant(case, access)
    (seen,) = access_to(case, AggregateAccess).rounds
    plain = finished(engine, defence=spec.replace("secure-aggregation", "none").removeprefix("none+"))
    torch.testing.assert_close(seen.mean, plain.rounds[0].delivery.mean, atol=1e-5, rtol=0)


def test_secure_aggregation_takes_its_options_to_the_channel_and_a_plain_channels_drop_outs_with_them():
    stack = make_defences("secure-aggregation(bits=16,clip=2.0,neighbours='auto')")
    assert defended_channel(Plain(), stack) == Secure(bits=16, clip=2.0, neighbours="auto")
    assert defended_channel(Plain(dropout=0.1), stack).dropout_before == 0.1
    own = make_defences("secure-aggregation(dropout_before=0.2)")
    assert defended_channel(Plain(dropout=0.1), own).dropout_before == 0.2
    assert defended_channel(Secure(bits=8), make_defences("secure-aggregation")) == Secure()
    assert defended_channel(Secure(bits=8), make_defences("clipping")) == Secure(bits=8)


@pytest.mark.parametrize(("bits", "word"), [(22, 4), (31, 8)])
def test_the_bytes_of_secure_aggregation_are_those_of_its_messages(engine, bits, word):
    model, clients = make_plain_model(), 3
    defences = make_defences(f"secure-aggregation(bits={bits})")
    federation = Federation(model, make_split(), Recipe(), engine=engine, defences=defences)
    (row,) = federation.run(read_vector(model), Plan(rounds=1)).rounds
    entries, name, key, share, sealed = federation.layout.size, 4, 32, 16, 48
    keys = name + 2 * key
    shares = name + clients * (sealed + 2 * key) + key
    opened = name + clients * (name + share)
    assert row.up == keys + shares + (name + word * (entries + 1)) + opened
    inbox = (clients - 1) * (2 * name + sealed + 2 * key)
    assert row.down == 4 * entries + clients * keys + inbox + clients * name


def test_seconds_are_kept_with_the_record_and_not_measured_again(engine, tmp_path):
    def run(rounds):
        federation = Federation(make_model(), make_split(), Recipe(), engine=engine)
        return federation.run(read_vector(make_model()), Plan(rounds=rounds), record=Record(tmp_path)).rounds

    first, all_rounds, again = run(1), run(3), run(3)
    assert all(row.seconds > 0 for row in all_rounds)
    assert first[0].seconds == all_rounds[0].seconds
    assert [row.seconds for row in again] == [row.seconds for row in all_rounds]


def test_what_a_process_loads_at_its_first_step_is_no_cost_of_training():
    script = """
from conftest import make_model, make_split
from glasshouse.federation.federation import Federation, Plan
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe

with Engine(1) as engine:
    federation = Federation(make_model(), make_split(), Recipe(epochs=3, batch_size=4), engine=engine)
    print(*(row.seconds for row in federation.run(read_vector(make_model()), Plan(rounds=5)).rounds))
"""
    folders = (Path(__file__).parent, Path(glasshouse.__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    first, *later = map(float, ran.stdout.split())
    assert first < 5 * max(later)


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    experiment = prepare(make_setting(SETTING))
    folder = RunFolder(tmp_path_factory.mktemp("costs") / "run", experiment.config())
    with Engine(1) as engine, Progress(quiet=True) as progress:
        return [run_battery(experiment, folder, engine, progress, detailed=False)[0] for _ in range(2)]


def test_every_variant_has_its_costs_and_a_resumed_run_the_same(findings):
    first, again = findings
    cost = {(f.defence, f.metric): f for f in first if f.family == "utility" and f.strategy == "fedavg"}
    for defence in ("none", *DEFENCES):
        for metric in ("bytes-up", "bytes-down", "training-seconds", "test-accuracy"):
            finding = cost[defence, metric]
            assert finding.value > 0
            assert finding.n
            assert finding.adversary is None
            assert metric_words(metric).leaks == "none"
    assert cost["secure-aggregation", "bytes-up"].value > cost["none", "bytes-up"].value
    assert cost["none", "bytes-up"].value == cost["mix-up", "bytes-up"].value
    assert [f.n for f in (cost["none", "bytes-up"], cost["more-local-steps(factor=2)", "bytes-up"])] == [6, 3]
    assert "in 3 rounds" in cost["more-local-steps(factor=2)", "training-seconds"].note
    central = [f.metric for f in first if f.family == "utility" and f.strategy == "central"]
    assert central == ["test-accuracy", "training-seconds"]
    timed = [[f.value for f in run if f.metric == "training-seconds"] for run in findings]
    assert timed[0] == timed[1]
    assert [f.value for f in first] == [f.value for f in again]


def test_what_a_server_cannot_see_could_not_be_tried_and_the_sum_still_can(findings):
    tried = {(f.defence, f.adversary, f.attack): f for f in findings[0] if f.attack}
    for adversary, attack in (("curious server", "label-counts"), ("crafting server", "saturated-head")):
        finding = tried["secure-aggregation", adversary, attack]
        assert finding.metric == "not-applicable"
        assert "no single update reaches the server: secure aggregation" in finding.reason
        assert tried["none", adversary, attack].value is not None
    assert tried["secure-aggregation", "blind server", "label-counts"].value is not None


def test_shadows_of_a_training_that_stopped_early_are_trained_as_long(findings):
    def found(defence, metric=None):
        about = [finding for finding in findings[0] if finding.defence == defence]
        return [
            f for f in about if f.metric == metric or (metric is None and f.attack == "lira(adaptive=True)")
        ]

    (stopped,) = found("early-stopping(patience=1)", "bytes-up")
    assert stopped.n < 6
    for defence, length in (
        ("early-stopping(patience=1)", f"{stopped.n} x 1"),
        ("more-local-steps(factor=2)", "3 x 2"),
    ):
        assert found(defence)
        for finding in found(defence):
            assert any(f"for {length} epochs under {defence}" in words for words in finding.assumes)


@pytest.mark.parametrize(("table", "changed", "defence", "words"), [
    ("training", {"fraction": 0.3}, "secure-aggregation", r"1 client takes part.*raise training\.fraction"),
    ("data", {"auxiliary": 0}, "early-stopping", r"nobody trains on; set data\.auxiliary above 0"),
])  # fmt: skip
def test_a_defence_that_clients_or_images_do_not_suffice_for_is_refused_before_any_training(
    table, changed, defence, words
):
    setting = SETTING | {"audit": {"defences": [defence]}}
    prepare(make_setting(setting))
    with pytest.raises(BadInput, match=words):
        prepare(make_setting(setting | {table: SETTING[table] | changed}))


def test_compositions_that_cannot_be_are_refused_before_any_work():
    audit = {"defences": ["secure-aggregation+secure-aggregation(bits=8)"]}
    with pytest.raises(BadInput, match="more than one defence chooses the channel"):
        check_names(make_setting({"audit": audit}))
    with pytest.raises(BadInput, match="shows only the sum"):
        check_names(
            make_setting({"training": {"strategy": "feddf"}, "audit": {"defences": ["secure-aggregation"]}})
        )
