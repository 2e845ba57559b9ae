"""How an auditor asks about membership, and what the answers are worth."""

import dataclasses
import itertools
from statistics import mean

import numpy as np
import pytest
from cases import SUBJECT, question_about, scores
from conftest import make_images, make_model
from planted import PROTOCOLS

from glasshouse.access import QueryAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.membership.bad import MIABad
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import make_setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import Variant, train_target
from glasshouse.data.dataset import Dataset
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.source import Sources
from glasshouse.evidence.truth import about_records
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import accuracy
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder


def test_an_auditor_asks_about_batches_only_where_the_protocol_does():
    setting = make_setting(
        {"data": {"clients": 3, "members": 30, "nonmembers": 30, "auxiliary": 40, "test": 20}}
    )
    truth = prepare(setting, Dataset("stripes", make_images(120)), make_model()).truth

    def asked(protocol, **options):
        attack = MIABad(protocol=protocol, **options)
        return about_records(truth, attack.query_unit, attack.member_share)

    for protocol in PROTOCOLS:
        batches, member = asked(protocol, batch_size=5)
        if protocol != "batch-batch":
            assert batches is None
            assert (member == (truth.holder >= 0)).all()
            continue
        assert batches.shape == (12, 5)
        held = truth.holder[batches] >= 0
        assert (held.all(1) == member).all()
        assert (held.any(1) == member).all()
        batches, member = asked(protocol, batch_size=4, fraction=0.5)
        shares = (truth.holder[batches] >= 0).mean(1)
        assert set(shares[member]) == {0.5}
        assert set(shares[~member]) == {0.0}


def outsiders_specs():
    """Every membership attack of an outsider that the registry has, with batches of 8 where it uses any."""
    for name in ATTACKS:
        attack = ATTACKS.make(name)
        if attack.family != "membership" or QueryAccess not in attack.needs:
            continue
        if name == "mia-bad":
            yield from (f"mia-bad(protocol='{protocol}', batch_size=8)" for protocol in PROTOCOLS)
        elif attack.query_unit > 1:
            yield f"{name}(batch_size=8)"
        else:
            yield name


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A model trained on other digits than those in question, with shadows for an attack on it."""
    folder, progress = tmp_path_factory.mktemp("stranger"), Progress(quiet=True)
    setting = make_setting({
        "seed": 1,
        "data": {"clients": 1, "members": 400, "nonmembers": 400, "auxiliary": 400, "test": 500},
        "model": {"name": "mlp"},
        "training": {"rounds": 1, "epochs": 15, "optimiser": "adam", "lr": 0.002, "local_test": 0},
        "audit": {"shadows": 8, "central": False, "defences": ()},
    })  # fmt: skip
    experiment = prepare(setting)
    held = experiment.split
    elsewhere = dataclasses.replace(held, clients=(held.test[:400],), test=held.test[400:])
    with Engine(1) as engine:
        other = dataclasses.replace(experiment, split=elsewhere)
        run = RunFolder(folder / "run", "x")
        target = train_target(other, run, engine, progress, Variant("fedavg", "none"))
        assert accuracy(target.case.model, elsewhere.images("members")) > 0.99
        shadows = Shadowing(experiment, folder / "shadows", engine, progress).under("none")
        yield dataclasses.replace(
            target.case, truth=experiment.truth, auxiliary=experiment.auxiliary, shadows=shadows
        )


@pytest.mark.parametrize("spec", list(outsiders_specs()))
def test_a_model_that_saw_none_of_the_candidates_gives_away_nothing(stranger, spec):
    found = {score.metric: score for score in examine(stranger, spec, QueryAccess).scores}
    area = found["auc"].estimate
    assert area.low <= 0.5 <= area.high
    assert found["auc"].chance == 0.5
    balanced = found["balanced-accuracy"].estimate
    assert balanced.low <= 0.5 <= balanced.high


def test_always_saying_member_is_reported_as_chance():
    question = question_about(make_images(1000), np.arange(1000) < 700)
    evidence = MembershipScores(np.zeros(1000), np.ones(1000, dtype=bool))
    found = scores(evidence, question)
    assert found["balanced-accuracy"].estimate.value == found["balanced-accuracy"].chance == 0.5
    assert found["auc"].estimate.value == found["auc"].chance == 0.5
    assert found["advantage"].estimate.value == found["advantage"].chance == 0.0


@pytest.mark.parametrize(("data", "ratio", "shown"), [("cifar10", 5, 0.833), ("mnist", 6, 0.857)])
def test_always_saying_member_is_chance_at_the_mix_of_the_paper_too(data, ratio, shown):
    from glasshouse.studies.mia_bad.cells import raw_accuracy

    evidence = MembershipScores(np.zeros(1000), np.ones(1000, dtype=bool))
    question = question_about(make_images(1000), np.arange(1000) < 700)
    case = Case(subject=SUBJECT, protocol=None)
    raw = raw_accuracy(
        Examination(case, "mia-bad", QueryAccess, "membership", evidence=evidence, question=question), data
    )
    assert raw.metric == f"accuracy-at-{ratio}:1"
    assert raw.estimate.value == pytest.approx(raw.chance)
    assert round(raw.chance, 3) == shown


def by_hand_auc(inside, outside):
    """The share of pairs in which the member scores higher; a tie counts half."""
    pairs = list(itertools.product(inside, outside))
    return mean((a > b) + (a == b) / 2 for a, b in pairs)


def test_risks_tell_whose_records_are_found_and_when():
    holder = np.repeat([0, 1, 2, -1], [6, 5, 4, 10])
    draw = np.random.default_rng(0)
    signal, first, last = draw.normal(size=(3, 25))
    by_client = draw.normal(size=(2, 25))  # client 2 was never seen
    evidence = MembershipScores(signal, signal > 0, by_client, {0: first, 3: last})
    risks = evidence.judge(question_about(make_images(25), holder)).exhibits.risk
    assert [(risk.kind, risk.index) for risk in risks] == [
        ("client", 0), ("client", 1), ("client", 2), ("round", 0), ("round", 3),
    ]  # fmt: skip
    used = [by_client[0], by_client[1], signal, first, last]
    members = [holder == 0, holder == 1, holder == 2, holder >= 0, holder >= 0]
    for risk, own, member in zip(risks, used, members):
        assert risk.value == pytest.approx(by_hand_auc(own[member], own[holder < 0]))
        assert risk.low <= risk.value <= risk.high
        assert risk.n == member.sum() + 10
        assert risk.chance == 0.5


def test_an_attack_that_does_not_know_clients_apart_is_judged_by_its_one_score():
    holder = np.repeat([0, 1, -1], [5, 5, 10])
    signal = np.concatenate([np.full(5, 2.0), np.full(5, -2.0), np.zeros(10)])
    evidence = MembershipScores(signal, signal > 0)
    risks = evidence.judge(question_about(make_images(20), holder)).exhibits.risk
    assert [(risk.kind, risk.index, risk.value) for risk in risks] == [
        ("client", 0, 1.0), ("client", 1, 0.0),
    ]  # fmt: skip


def test_a_clients_records_are_set_against_its_own_non_members_where_the_data_say_whose_they_are():
    holder = np.repeat([0, 1, -1], [10, 10, 30])
    origin = np.repeat([0, 1, 0, 1, -1], [10, 10, 10, 10, 10])
    level = np.repeat([3.0, 0.0, 3.0, 0.0, -9.0], 10)  # clients differ, their members and non-members do not
    signal = level + np.tile(np.linspace(0, 0.1, 10), 5)
    question = question_about(make_images(50), holder)
    evidence = MembershipScores(signal, signal > 0)
    unaware = [risk.value for risk in evidence.judge(question).exhibits.risk]
    assert unaware == pytest.approx([2.5 / 3, 1.5 / 3], abs=0.01)
    named = dataclasses.replace(question.truth, origin=origin, names=("north", "south"))
    risks = evidence.judge(dataclasses.replace(question, truth=named)).exhibits.risk
    assert [(risk.name, risk.value, risk.n) for risk in risks] == [("north", 0.5, 20), ("south", 0.5, 20)]


def test_batches_have_no_risks_by_client_and_nobody_has_them_who_does_not_ask():
    batches, member = np.arange(8).reshape(2, 4), np.array([True, False])
    images, holder = make_images(8), np.repeat([0, -1], 4)
    question = question_about(images, holder, batches=batches, member=member)
    assert MembershipScores(np.zeros(2), member).judge(question).exhibits.risk == ()
    brief = dataclasses.replace(question_about(images, holder), detailed=False)
    assert MembershipScores(np.zeros(8), holder >= 0).judge(brief).exhibits.risk == ()


def test_the_blind_guess_of_a_source_is_the_largest_client():
    holder = np.array([-1, 0, 1, 1, 1, 2, -1, 2, 1, 0])
    named = np.array([1, 0, 1, 1, 2, 2, 1, 0, 1, 1])
    question = question_about(make_images(10), holder)
    (found,) = Sources(named).judge(question).scores
    assert found.metric == "source-accuracy"
    assert found.estimate.value == pytest.approx(5 / 8)
    assert found.estimate.n == 8
    assert found.chance == pytest.approx(4 / 8)
    (blind,) = Sources(np.ones(10, dtype=np.int64)).judge(question).scores
    assert blind.estimate.value == blind.chance


@pytest.mark.slow
@pytest.mark.real_data
def test_records_learned_by_heart_are_found_and_best_by_lira_where_accusations_must_be_sure(tmp_path):
    setting = make_setting({
        "data": {
            "name": "cifar10", "clients": 1, "members": 1000, "nonmembers": 2000, "auxiliary": 2000,
            "test": 2000,
        },
        "model": {"name": "lenet"},
        "training": {"rounds": 1, "epochs": 100, "optimiser": "adam", "lr": 0.001, "local_test": 0},
        "audit": {
            "attacks": ("loss-threshold", "lira"), "defences": (), "central": False, "shadows": 16,
        },
    })  # fmt: skip
    progress = Progress(quiet=True)
    experiment = prepare(setting)
    with Engine() as engine:
        folder = RunFolder(tmp_path / "run", experiment.config())
        target = train_target(experiment, folder, engine, progress, Variant("fedavg", "none"))
        shadows = Shadowing(experiment, tmp_path / "shadows", engine, progress).under("none")
        case = dataclasses.replace(target.case, shadows=shadows)
        found = {}
        for spec in setting.audit.attacks:
            judged = examine(case, spec, QueryAccess).scores
            found[spec] = {score.metric: score.estimate.value for score in judged}
    assert accuracy(case.model, experiment.split.images("members")) >= 0.999
    assert found["loss-threshold"]["balanced-accuracy"] >= 0.65
    assert found["lira"]["tpr-at-1%-fpr"] > found["loss-threshold"]["tpr-at-1%-fpr"]
