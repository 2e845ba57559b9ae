import dataclasses
import math

import numpy as np
import pytest
import torch

from glasshouse.access import AggregateAccess, QueryAccess, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.canaries import CanaryClients, CanaryRecords, CanaryUpdates
from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.canaries import FOLDER, canary_specs, insert_clients, insert_records
from glasshouse.auditing.examine import examine
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.hypotheses import hypothesis
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.target import Variant, federation_of, train_target
from glasshouse.defences.promise import Promise
from glasshouse.errors import BadInput, CannotRun
from glasshouse.learning.engine import Engine
from glasshouse.measures.canaries import cosine_epsilon, normal_epsilon
from glasshouse.measures.families import Gaussian, SampledGaussian, gaussian_epsilon
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder
from glasshouse.verdicts.contradictions import contradictions
from glasshouse.verdicts.pooling import pooled

PRIVATE_CLIENTS = "differential-privacy(noise=1.0,norm=0.5)"


def setting(**audit):
    return Setting(
        data={"clients": 4, "members": 120, "nonmembers": 40, "auxiliary": 20, "test": 40},
        model={"name": "mlp"},
        training={"rounds": 3, "epochs": 1, "batch_size": 10, "local_test": 0},
        audit={"central": False, "curvature": 0, "ladder": False, "attacks": ["gap"], "defences": []} | audit,
    )


@pytest.fixture(scope="module")
def experiment():
    return prepare(setting())


@pytest.fixture(scope="module")
def engine():
    with Engine(1) as running:
        yield running


def trained(prepared, folder, engine, defence, reads=()):
    run = RunFolder(folder / "run", prepared.config(), prepared.origin)
    return train_target(prepared, run, engine, Progress(quiet=True), Variant("fedavg", defence), reads)


@pytest.mark.parametrize("images", ["random", "mislabelled"])
def test_canary_records_take_the_place_of_others_so_that_all_sizes_stay(experiment, images):
    prepared, truth = insert_records(experiment, CanaryRecords(canaries=30, images=images))
    before, after = experiment.split, prepared.split
    for old, new in zip(before.clients, after.clients, strict=True):
        assert (old == new).all()
        changed = (before.pool.y[old] != after.pool.y[old]).sum()
        assert changed <= len(old) // 2
    assert int((before.pool.y != after.pool.y).sum()) == 30
    outside = np.setdiff1d(np.arange(len(before.pool)), before.members)
    assert torch.equal(before.pool.x[outside], after.pool.x[outside])
    assert torch.equal(before.pool.x, after.pool.x) == (images == "mislabelled")
    assert len(truth.candidates) == 60


def test_the_coin_chooses_one_of_two_wrong_labels_and_the_truth_says_which(experiment):
    prepared, truth = insert_records(experiment, CanaryRecords(canaries=40))
    first, second = truth.candidates.y[:40], truth.candidates.y[40:]
    assert (first != second).all()
    coins = truth.holder[:40] >= 0
    assert ((truth.holder[40:] >= 0) == ~coins).all()
    assert 8 <= coins.sum() <= 32
    pool = prepared.split.pool
    for number in range(40):
        (place,) = torch.nonzero((pool.x == truth.candidates.x[number]).flatten(1).all(1)).flatten()
        label = first[number] if coins[number] else second[number]
        assert pool.y[place] == label
        assert experiment.split.pool.y[place] not in (first[number], second[number])
        client = truth.holder[number] if coins[number] else truth.holder[40 + number]
        assert place in prepared.split.clients[client]


def test_canary_records_of_an_overfitted_model_bound_epsilon_far_from_zero(tmp_path, engine):
    overfitted = setting().model_copy(
        update={
            "training": setting().training.model_copy(update={"rounds": 15, "epochs": 8, "lr": 0.3}),
        }
    )
    prepared, truth = insert_records(prepare(overfitted), CanaryRecords())
    target = trained(prepared, tmp_path, engine, "none")
    case = dataclasses.replace(target.case, truth=truth)
    findings = {f.metric: f for f in examine(case, "canary-records", QueryAccess).findings()}
    bound = findings["epsilon-delta-lower-bound"]
    assert bound.value > 1.0
    assert (bound.low, bound.high, bound.n, bound.chance) == (bound.value, None, 60, 0.0)
    for words in ("one-sided", "delta 1e-05", "60 canaries", "exchange of two"):
        assert words in bound.note
    assert findings["coin-auc"].value > 0.9


def test_canary_clients_send_their_direction_clipped_and_with_its_sign(experiment, tmp_path, engine):
    attack = CanaryClients(canaries=6)
    variant = Variant("fedavg", "differential-privacy(noise=0.0,norm=0.5)")
    prepared, truth = insert_clients(experiment, attack, variant)
    target = trained(prepared, tmp_path, engine, variant.defence, (AggregateAccess,))
    directions = target.case.directions
    vectors = torch.stack([directions[canary] for canary in range(6)])
    assert vectors.norm(dim=1).tolist() == pytest.approx([1.0] * 6, abs=1e-5)
    signs = torch.from_numpy(np.where(truth.holder >= 0, 1.0, -1.0))
    # Ten clients, all in every round: without noise a canary adds norm / 10 in its direction to the mean.
    for observed in target.case.rounds:
        along = vectors.double() @ observed.delivery.mean[: directions.trainable].double()
        assert (along * signs * 10 / 0.5).tolist() == pytest.approx([1.0] * 6, abs=0.35)
    assert len(target.case.rounds) == 3
    case = dataclasses.replace(target.case, truth=truth)
    found = examine(case, "canary-clients(canaries=6)", AggregateAccess)
    assert {score.metric: score.estimate.value for score in found.scores}["coin-auc"] == 1.0
    assert "the directions of 6 canary clients, without their signs" in found.granted


def test_the_bound_of_canary_clients_keeps_below_what_their_defence_spends(experiment, tmp_path, engine):
    variant = Variant("fedavg", PRIVATE_CLIENTS)
    prepared, truth = insert_clients(experiment, CanaryClients(), variant)
    target = trained(prepared, tmp_path, engine, variant.defence, (AggregateAccess,))
    case = dataclasses.replace(target.case, truth=truth)
    findings = {f.metric: f for f in examine(case, "canary-clients", AggregateAccess).findings()}
    (promise,) = case.promises
    bound = findings["epsilon-delta-lower-bound-client"]
    assert 0.2 * promise.epsilon < bound.value < promise.epsilon
    estimate = findings["epsilon-estimate-client"]
    assert estimate.low < estimate.value < estimate.high
    assert 0.6 * promise.epsilon < estimate.value < 1.5 * promise.epsilon


def test_who_sees_single_updates_finds_the_signs_that_noise_on_their_sum_hides(experiment, tmp_path, engine):
    variant = Variant("fedavg", "differential-privacy(noise=50.0,norm=0.5,sampling='fixed')")
    prepared, truth = insert_clients(experiment, CanaryUpdates(canaries=20), variant)
    target = trained(prepared, tmp_path, engine, variant.defence, (UpdateAccess, AggregateAccess))
    case = dataclasses.replace(target.case, truth=truth)
    coin = {
        name: {f.metric: f.value for f in examine(case, name, access).findings()}["coin-auc"]
        for name, access in (("canary-updates", UpdateAccess), ("canary-clients", AggregateAccess))
    }
    assert coin["canary-updates"] == 1.0
    assert coin["canary-clients"] < 0.9


def test_canary_clients_weigh_as_much_as_the_largest_of_the_others(experiment, tmp_path, engine):
    variant = Variant("fedavg", "differential-privacy(noise=0.0,norm=0.5)")
    prepared, _ = insert_clients(experiment, CanaryClients(canaries=3), variant)
    largest = max(map(len, experiment.split.clients))
    assert federation_of(prepared, variant, engine).sizes[-3:] == [largest] * 3


def test_a_promise_that_trusts_nobody_is_tested_on_single_updates(experiment, tmp_path, engine):
    (promise,) = trained(experiment, tmp_path, engine, PRIVATE_CLIENTS).case.promises
    assert promise.trust
    assert canary_specs(setting(), (promise,)) == ["canary-clients"]
    assert canary_specs(setting(), (dataclasses.replace(promise, trust=""),)) == ["canary-updates"]


def test_canaries_run_where_privacy_is_promised_or_where_they_are_named(tmp_path, engine):
    prepared = prepare(setting(defences=[PRIVATE_CLIENTS]))
    folder = RunFolder(tmp_path / "run", prepared.config(), prepared.origin)
    findings, _ = run_battery(prepared, folder, engine, Progress(quiet=True))
    canaries = [finding for finding in findings if (finding.attack or "").startswith("canary")]
    assert {finding.defence for finding in canaries} == {PRIVATE_CLIENTS}
    assert {finding.attack for finding in canaries} == {"canary-clients"}
    assert "epsilon-delta-lower-bound-client" in {finding.metric for finding in canaries}
    again, _ = run_battery(prepared, folder, engine, Progress(quiet=True))
    assert again == findings
    assert [path.name for path in (folder.path / FOLDER).iterdir()] == ["canary-clients"]


QUIET = """
from dataclasses import dataclass
from glasshouse.defences.privacy import DifferentialPrivacy

@dataclass(frozen=True, kw_only=True)
class TooQuiet(DifferentialPrivacy):
    def promises(self, conditions):
        return DifferentialPrivacy(noise=8 * self.noise).promises(conditions)
"""


def test_a_defence_that_adds_an_eighth_of_the_noise_it_accounts_for_is_caught(tmp_path, engine, monkeypatch):
    (tmp_path / "too_quiet_defence.py").write_text(QUIET)
    monkeypatch.syspath_prepend(str(tmp_path))
    prepared = prepare(setting(defences=["too_quiet_defence:TooQuiet(noise=0.5,norm=0.5)"]))
    folder = RunFolder(tmp_path / "run", prepared.config(), prepared.origin)
    findings, _ = run_battery(prepared, folder, engine, Progress(quiet=True))
    (contradiction,) = contradictions(pooled(findings))
    assert contradiction.bound.row.attack == "canary-clients"
    assert contradiction.bound.low > 1.5 * contradiction.spent.value


def test_a_named_canary_attack_replaces_that_of_the_promise(tmp_path, engine, experiment):
    target = trained(experiment, tmp_path, engine, PRIVATE_CLIENTS)
    named = setting(attacks=["gap", "canary-clients(canaries=9)", "canary-records"])
    assert canary_specs(named, target.case.promises) == ["canary-clients(canaries=9)", "canary-records"]
    assert canary_specs(setting(), target.case.promises) == ["canary-clients"]
    assert canary_specs(setting(), ()) == []


def test_canaries_that_cannot_be_inserted_say_why(experiment, tmp_path, engine):
    with pytest.raises(CannotRun, match="differential-privacy"):
        insert_clients(experiment, CanaryClients(), Variant("fedavg", "none"))
    target = trained(experiment, tmp_path, engine, "none")
    for name, access in (("canary-records", QueryAccess), ("canary-clients", AggregateAccess)):
        (finding,) = examine(target.case, name, access).findings()
        assert finding.value is None
        assert "no canaries were inserted" in finding.reason
    for spec in (
        "canary-records(canaries=0)",
        "canary-records(images='blue')",
        "canary-clients(canaries=-1)",
        "canary-updates(canaries=0)",
    ):
        with pytest.raises(BadInput, match="out of range"):
            ATTACKS.make(spec)


def test_membership_attacks_bound_epsilon_at_delta_beside_pure_epsilon(experiment, tmp_path, engine):
    target = trained(experiment, tmp_path, engine, "none")
    findings = {finding.metric: finding for finding in examine(target.case, "gap", QueryAccess).findings()}
    bound = findings["epsilon-delta-lower-bound"]
    assert (bound.chance, bound.n) == (0.0, findings["epsilon"].n)
    assert "delta 1e-05" in bound.note
    by_user = dataclasses.replace(target.case, truth=dataclasses.replace(experiment.truth, by_user=True))
    missing = {f.metric: f for f in examine(by_user, "gap", QueryAccess).findings()}
    assert "whole users" in missing["epsilon-delta-lower-bound"].reason


def promise(**changes):
    sums = Promise(
        unit="record",
        epsilon=2.0,
        delta=1e-6,
        noise=1.1,
        rate=0.1,
        steps=50,
        sampling="poisson",
        neighbours="add-remove",
    )
    return dataclasses.replace(sums, **changes)


def test_a_bound_is_tested_against_the_mechanism_that_was_promised():
    sampled = hypothesis([promise()], "record")
    assert sampled.family == SampledGaussian(noise=1.1, rate=0.1, steps=50)
    assert sampled.delta == 1e-6
    assert hypothesis([promise()], "client").family == Gaussian()
    assert hypothesis([promise(sampling="all", rate=1.0)], "record").family == Gaussian()
    assert hypothesis([promise(epsilon=math.inf)], "record").family == Gaussian()
    tighter = promise(epsilon=1.0, noise=2.0)
    assert hypothesis([promise(), tighter], "record").family.noise == 2.0


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_estimate_from_cosines_finds_the_epsilon_of_a_gaussian_mechanism(mu):
    rng = np.random.default_rng(0)
    dimension = 400
    cosines = (mu + rng.normal(size=3000)) / math.sqrt(dimension)
    estimate = cosine_epsilon(cosines, dimension, 1e-5, rng)
    truth = gaussian_epsilon(mu, 1e-5)
    assert estimate.low < truth * 1.1
    assert estimate.high > truth
    assert estimate.value == pytest.approx(truth, rel=0.15)
    assert normal_epsilon(mu, 1.0, 1e-5) == pytest.approx(truth, rel=1e-3)
    assert cosine_epsilon(cosines[:1], dimension, 1e-5, rng).value is None
