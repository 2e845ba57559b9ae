"""Auditing the rounds of a federation that somebody else ran."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from conftest import CLASSES, SHAPE, make_model, make_split
from recorded_rounds import RECIPE, saved_parts, train_plainly
from safetensors.numpy import load_file, save_file
from test_cli import run

from glasshouse import BadInput, audit_record
from glasshouse.access import ModelAccess, UpdateAccess
from glasshouse.api import plan_of_record
from glasshouse.auditing.examine import examine
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.recorded.case import prepare_recorded
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import make_setting
from glasshouse.auditing.target import Variant, train_target
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive
from glasshouse.models import build
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder, read_origin
from glasshouse.store import read_notes
from glasshouse.verdicts.pooling import pooled

UNSHADOWED = [
    *("loss-threshold", "gap", "mia-bad", "gradient-alignment", "source-inference", "label-counts"),
    *("linear-leak", "set-loss"),
]
ROUNDS = 3


def setting(attacks=UNSHADOWED, **audit):
    quick = {"attacks": attacks, "defences": [], "central": False, "ladder": False, "curvature": 20}
    return make_setting({"audit": quick | audit, "training": {"rounds": ROUNDS, "local_test": 0, **RECIPE}})


@pytest.fixture(scope="module")
def split():
    return make_split()


@pytest.fixture(scope="module")
def record(split, tmp_path_factory):
    """The record of a plain loop that draws as Glasshouse's own federation with seed 0 does."""
    folder = tmp_path_factory.mktemp("records") / "hospitals"
    seed = derive(0, "federation")
    train_plainly(folder, make_model(), split, Recipe(**RECIPE), rounds=ROUNDS, seed=seed)
    return folder


@pytest.fixture(scope="module")
def parts(split, tmp_path_factory):
    return saved_parts(tmp_path_factory.mktemp("parts"), split)


@pytest.fixture(scope="module")
def judged(record, parts, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "judged"
    return audit_record(record, setting(), model=make_model(), out=out, workers=1, quiet=True, **parts)


def numbers(findings, *, whose):
    """What each attack of some adversaries found, without where it was found and how long it took."""
    return {
        (one.adversary, one.attack, one.metric): (one.value, one.low, one.high, one.chance, one.n)
        for one in findings
        if one.adversary in whose and one.value is not None
    }


WATCHING = ("outsider", "curious server", "blind server")


def test_the_same_federation_gives_the_same_numbers_whoever_ran_it(split, judged, tmp_path):
    own = run_audit(setting(), dataset=split, model=make_model(), out=tmp_path / "own", workers=1, quiet=True)
    expected, found = (numbers(run.findings, whose=WATCHING) for run in (own, judged))
    assert {key[0] for key in found} == {*WATCHING}
    assert len(found) > 15
    assert found == expected


@pytest.fixture(scope="module")
def own(split, tmp_path_factory):
    """The same federation, run by Glasshouse, as a case."""
    experiment = prepare(setting(), split, make_model())
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "own", experiment.config())
    with Progress(quiet=True) as progress, Engine(1) as engine:
        variant = Variant("fedavg", "none")
        return train_target(experiment, folder, engine, progress, variant, [UpdateAccess]).case


def test_a_record_holds_what_the_server_saw_bit_by_bit(own, record):
    recorded = prepare_recorded(record, setting(), {}, make_model()).case
    assert recorded.sizes == own.sizes
    assert torch.equal(read_vector(recorded.model), read_vector(own.model))
    for ours, theirs in zip(own.rounds, recorded.rounds, strict=True):
        assert theirs.number == ours.number
        assert torch.equal(theirs.sent, ours.sent)
        assert torch.equal(theirs.delivery.mean, ours.delivery.mean)
        for update, other in zip(ours.delivery.updates, theirs.delivery.updates, strict=True):
            assert (other.client, other.samples) == (update.client, update.samples)
            assert torch.equal(other.delta, update.delta)


def test_an_owner_fools_the_recorded_model_as_often(own, record):
    case = prepare_recorded(record, setting(), {}, make_model()).case
    case = dataclasses.replace(case, truth=own.truth)
    for spec in ("fgsm(eps=(0.05,0.1))", "square(eps=0.1,queries=20)"):
        ours, theirs = (examine(one, spec, ModelAccess).scores for one in (own, case))
        assert [score.estimate for score in ours] == [score.estimate for score in theirs]


def test_what_a_record_does_not_hold_is_not_tried_and_says_why(judged):
    untried = {(one.adversary, one.attack): one.reason for one in judged.findings if one.value is None}
    assert "no payload and no reports" in untried["client", "mimic-distance"]
    assert judged.report.exists()


def test_without_members_only_what_needs_no_truth_says_something(record, tmp_path):
    done = audit_record(record, setting(), model=make_model(), out=tmp_path / "r", workers=1, quiet=True)
    told = {one.attack for one in done.findings if one.value is not None}
    assert told == {"label-counts"}
    reasons = {one.attack: one.reason for one in done.findings if one.value is None}
    assert "give --members and --nonmembers" in reasons["loss-threshold"]
    assert "nobody can judge it" in reasons["linear-leak"]
    rows = [one for one in done.findings if one.metric == "label-count"]
    assert {one.cell.split("/")[2] for one in rows if one.adversary == "curious server"} == {"0", "1", "2"}
    page = done.report.read_text()
    assert "NOT JUDGED" in page
    assert "What this federation gives away" in page
    assert "The curious server counts of the images of 0 " in page


def test_a_member_without_a_client_is_nobodys(record, split, tmp_path):
    members = split.pool[split.members]
    done = audit_record(
        record,
        setting(["gap", "loss-threshold", "source-inference", "label-counts"]),
        model=make_model(),
        members=(members.x, members.y),
        nonmembers=split.images("nonmembers"),
        out=tmp_path / "r",
        workers=1,
        quiet=True,
    )
    by_attack = {one.attack: one for one in done.findings if one.attack and one.adversary != "blind server"}
    assert by_attack["gap"].value is not None
    assert "give some with --auxiliary" in by_attack["loss-threshold"].reason
    for attack in ("source-inference", "label-counts"):
        assert "which of the clients held which member" in by_attack[attack].reason


def pixels(images):
    return {tuple(image.flatten().tolist()) for image in images.x}


def test_clients_go_by_their_names(split, tmp_path):
    names = ["ward 10", "ward 9", "ward 2"]
    recipe = Recipe(**RECIPE)
    train_plainly(tmp_path / "r", make_model(), split, recipe, rounds=1, names=names)
    parts = saved_parts(tmp_path, split, names)
    case = prepare_recorded(tmp_path / "r", setting(), parts, make_model()).case
    assert case.truth.names == ("ward 2", "ward 9", "ward 10")
    assert case.sizes == (10, 20, 30)
    assert [len(held) for held in case.truth.clients] == [10, 20, 30]
    (seen,) = case.rounds
    assert seen.delivery.clients == (2, 1, 0)
    members = case.truth.candidates[case.truth.holder == 0]
    expected = split.pool[split.clients[2]]
    assert {tuple(x.flatten().tolist()) for x in members.x} == {
        tuple(x.flatten().tolist()) for x in expected.x
    }


def test_a_client_that_took_no_part_is_refused(record, split, tmp_path):
    parts = saved_parts(tmp_path, split, ["0", "1", "nobody"])
    with pytest.raises(BadInput, match=r"client 'nobody', which took part in no round; clients are 0, 1, 2"):
        prepare_recorded(record, setting(), parts, make_model())


def test_of_a_bounded_record_the_server_sees_some_updates_and_the_sum_of_all(split, tmp_path):
    recipe = Recipe(**RECIPE)
    train_plainly(tmp_path / "r", make_model(), split, recipe, rounds=1, clients=1)
    train_plainly(tmp_path / "all", make_model(), split, recipe, rounds=1)
    few, whole = (
        prepare_recorded(tmp_path / name, setting(), {}, make_model()).case.rounds[0].delivery
        for name in ("r", "all")
    )
    assert [update.client for update in few.updates] == [0]
    assert few.clients == (0, 1, 2)
    torch.testing.assert_close(few.mean, whole.mean, rtol=0, atol=1e-6)


def test_a_record_of_sums_is_one_of_a_blind_server(split, tmp_path):
    recipe = Recipe(**RECIPE)
    words = {"channel": "sum", "described": "SecAgg+ with 3 clients"}
    train_plainly(tmp_path / "r", make_model(), split, recipe, rounds=1, clients=0, **words)
    parts = saved_parts(tmp_path, split)
    done = audit_record(
        tmp_path / "r", setting(["label-counts"]), model=make_model(), out=tmp_path / "o", quiet=True, **parts
    )
    rows = [one for one in done.findings if one.attack == "label-counts"]
    reasons = {one.adversary: one.reason for one in rows if one.value is None}
    assert "no single update reaches the server: SecAgg+ with 3 clients" in reasons["curious server"]
    (overlap,) = [one for one in rows if one.metric == "label-overlap" and one.adversary == "blind server"]
    assert overlap.value > 0.5
    assert "SecAgg+ with 3 clients" in overlap.assumes


def test_what_the_record_does_not_tell_is_assumed_and_named(split, tmp_path):
    recipe = Recipe(**RECIPE)
    train_plainly(tmp_path / "r", make_model(), split, recipe, rounds=1, told={"lr": 0.1}, strategy="mine")
    done = audit_record(
        tmp_path / "r", setting(["label-counts"]), model=make_model(), out=tmp_path / "o", quiet=True
    )
    (one, *_) = [one for one in done.findings if one.metric == "label-count"]
    assert "does not tell epochs, batch_size, optimiser; assumed: epochs = 1, batch_size = 32" in one.note
    assert "'mine', unknown here" in one.note


def audited(record, tmp_path, attacks=("gap", "label-counts"), **options):
    """The findings of a quick audit into one folder."""
    quick = {"model": make_model(), "out": tmp_path / "o", "workers": 1, "quiet": True}
    return audit_record(record, setting(attacks), **quick, **options).findings


@pytest.mark.parametrize("file", ["final.safetensors", "rounds/0001/update-0002.safetensors"])
def test_numbers_of_other_tensors_are_not_taken_for_those_of_this_record(record, parts, tmp_path, file):
    folder = shutil.copytree(record, tmp_path / "r")
    first = audited(folder, tmp_path, **parts)
    assert audited(folder, tmp_path, **parts) == first
    tensors, notes = load_file(folder / file), read_notes(folder / file)
    tensors["0.bias"] = tensors["0.bias"] + 1
    save_file(tensors, folder / file, notes)
    with pytest.raises(BadInput, match="holds a run of other the record"):
        audited(folder, tmp_path, **parts)


def test_what_else_lies_beside_a_record_is_not_looked_at(record, parts, tmp_path):
    folder = shutil.copytree(record, tmp_path / "r")
    first = audited(folder, tmp_path, **parts)
    (tmp_path / "elsewhere.json").write_text("{}")
    (folder / "x.json").symlink_to(tmp_path / "elsewhere.json")
    assert audited(folder, tmp_path, **parts) == first


def test_the_candidates_have_a_fingerprint_as_the_data_of_other_audits_have(record, split, parts, tmp_path):
    def fingerprint(name, **given):
        audited(record, tmp_path / name, ["gap"], **given)
        return read_origin((tmp_path / name / "o" / "config.toml").read_text())[1].get("data")

    both = fingerprint("files", members=parts["members"], nonmembers=parts["nonmembers"])
    assert fingerprint("more", **parts) == both
    members, others = split.pool[split.members], split.images("auxiliary")
    assert fingerprint("others", members=members, nonmembers=others) not in (both, None)
    assert fingerprint("nobody") is None


def test_a_plan_does_not_say_that_nothing_is_trained_where_shadow_models_are(record, parts):
    said = []
    for attack in ("gap", "lira"):
        plan = plan_of_record(record, setting([attack]), model=make_model(), **parts)
        words = " ".join(str(plan).split())
        said.append(("nothing is trained" in words, "shadow models of a record take is not known" in words))
    assert said == [(True, False), (False, True)]


def test_a_plan_says_what_would_be_tried_and_writes_nothing(record, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = plan_of_record(record, setting(["loss-threshold", "saturated-head"]), model=make_model(), **parts)
    assert [planned.assignment.spec for planned in plan.running] == ["loss-threshold"]
    assert "live clients" in str(plan)
    assert not list(tmp_path.iterdir())


def test_a_record_without_a_final_model_is_one_of_servers_alone(split, parts, tmp_path):
    recipe = Recipe(**RECIPE)
    train_plainly(tmp_path / "r", make_model(), split, recipe, rounds=1, strategy=None)
    (tmp_path / "r" / "final.safetensors").unlink()
    few = setting(["gap", "fgsm", "source-inference"])
    done = audit_record(tmp_path / "r", few, model=make_model(), out=tmp_path / "o", quiet=True, **parts)
    reasons = {one.attack: one.reason for one in done.findings if one.value is None}
    assert reasons["gap"] == reasons["fgsm"]
    assert "no final.safetensors" in reasons["gap"]
    assert any(one.attack == "source-inference" and one.value is not None for one in done.findings)


def test_further_seeds_ask_again(record, parts, tmp_path):
    few = setting(["mia-bad"], shadows=0)
    done = audit_record(record, few, model=make_model(), seeds=2, out=tmp_path / "o", quiet=True, **parts)
    again = audit_record(record, few, model=make_model(), seeds=2, out=tmp_path / "o", quiet=True, **parts)
    assert {one.seed for one in done.findings} == {0, 1}
    assert again.findings == done.findings


def test_further_seeds_do_not_narrow_what_the_images_of_a_record_leave_open(record, parts, tmp_path):
    done = audit_record(
        record,
        setting(["loss-threshold"]),
        model=make_model(),
        seeds=3,
        out=tmp_path / "o",
        quiet=True,
        **parts,
    )
    assert done.same_records
    kinds = {"attack": "loss-threshold", "metric": "auc", "adversary": "outsider"}
    first, *others = [row for row in done.findings if all(getattr(row, k) == v for k, v in kinds.items())]
    for row in others:
        assert (row.value, row.low, row.high) == pytest.approx((first.value, first.low, first.high))
    measures = pooled(done.findings, same_records=done.same_records)
    (auc,) = [m for m in measures if all(getattr(m.row, k) == v for k, v in kinds.items())]
    assert (auc.low, auc.high, auc.n) == (pytest.approx(first.low), pytest.approx(first.high), first.n)


def test_members_alone_are_enough_to_judge_what_is_asked_of_clients(record, parts, tmp_path):
    few = setting(["label-counts", "loss-threshold"])
    done = audit_record(
        record, few, model=make_model(), members=parts["members"], out=tmp_path / "o", quiet=True
    )
    rows = {one.attack: one for one in done.findings if one.adversary in ("outsider", "curious server")}
    assert rows["label-counts"].value is not None
    assert "give --nonmembers" in rows["loss-threshold"].reason


def test_where_some_clients_keep_their_images_to_themselves_nothing_is_judged_of_clients(
    record, split, tmp_path
):
    mine = split.client(2)
    few = setting(["label-counts", "source-inference", "gap"])
    done = audit_record(
        record,
        few,
        model=make_model(),
        members=(mine.x, mine.y, np.full(len(mine), "2")),
        nonmembers=split.images("nonmembers"),
        out=tmp_path / "o",
        quiet=True,
    )
    by_attack = {one.attack: one for one in done.findings if one.attack}
    assert by_attack["gap"].value is not None
    for attack in ("label-counts", "source-inference"):
        assert "nobody says what client '0' held" in by_attack[attack].reason


def test_the_command_audits_a_record(split, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    network = build("mlp", SHAPE, CLASSES)
    train_plainly(tmp_path / "r", network, split, Recipe(**RECIPE), rounds=2, model="mlp")
    assert run(monkeypatch, capsys, "audit", "r", "--quiet", "--out", "o", "--workers", "1")[:2] == (0, "o\n")
    assert (tmp_path / "o" / "report.html").exists()
    code, out, _ = run(monkeypatch, capsys, "audit", "r", "--plan")
    assert code == 0
    assert "Who attacks" in out
    for option in (("--data", "digits"), ("--weights", "w.pt"), ("--defences", "all")):
        code, _, line = run(monkeypatch, capsys, "audit", "r", *option)
        assert (code, option[0] in line) == (2, True)
