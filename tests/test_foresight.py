"""What cannot run is known before training, by the reason that a run gives."""

from dataclasses import dataclass

import pytest
import torch

from glasshouse import Setting
from glasshouse.access import AggregateAccess, BlindServerAccess, QueryAccess, ServerAccess, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack
from glasshouse.auditing.attacking import assignments
from glasshouse.auditing.examine import examine
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.foresight import why_not
from glasshouse.auditing.target import Variant, train_target
from glasshouse.evidence.membership import MembershipScores
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder

READING = (
    "label-counts", "inverting-gradients(steps=1)", "strongest-inversion(seconds=0.1)", "linear-leak",
    "r-gap", "april-analytic", "spear", "idlg(steps=1)", "gradinversion(steps=1)", "gradvit(steps=1)",
    "saturated-head", "scale-mia(steps=1)", "scale-mia-peeled(steps=1)", "mandrake(bins=4)",
    "fishing(steps=1)", "eluding(steps=1)",
)  # fmt: skip
"""Attacks that read gradients."""


def tiny(**changes):
    """An experiment on a few digits, with the changed tables."""
    tables = {
        "data": {"clients": 3, "members": 30, "nonmembers": 10, "auxiliary": 20, "test": 20},
        "training": {"rounds": 1, "local_test": 0},
    }
    merged = {name: table | changes.pop(name, {}) for name, table in tables.items()}
    return prepare(Setting(**merged, **changes))


def both_reasons(experiment, tmp_path, engine, specs):
    """By attack and adversary, why it cannot run: before the training, and after it."""
    variant = Variant(experiment.setting.training.strategy, "none")
    tried = assignments(specs)
    before = {(a.spec, a.access): why_not(experiment, a.spec, a.access) for a in tried}
    folder = RunFolder(tmp_path / "run", experiment.config(), experiment.origin)
    with Progress(quiet=True) as progress:
        reads = {assignment.access for assignment in tried}
        case = train_target(experiment, folder, engine, progress, variant, reads).case
    after = {key: examine(case, *key).reason for key in before if before[key] is not None}
    return before, after


def test_with_adam_all_that_read_gradients_are_known_not_to_run_by_the_reason_of_the_run(tmp_path, engine):
    experiment = tiny(training={"optimiser": "adam", "lr": 0.01})
    before, after = both_reasons(experiment, tmp_path, engine, READING)
    assert all(reason is not None and "adam" in reason for reason in before.values())
    assert {key: before[key] for key in after} == after


def test_what_the_network_or_the_clients_rule_out_is_known_by_the_reason_of_the_run(tmp_path, engine):
    before, after = both_reasons(tiny(), tmp_path, engine, READING)
    assert after
    assert {key: before[key] for key in after} == after
    assert before["label-counts", UpdateAccess] is None
    assert "holds 10 images" in before["r-gap", UpdateAccess]
    assert "holds 30 images" in before["r-gap", AggregateAccess]
    assert "second linear layer is the last" in before["scale-mia(steps=1)", BlindServerAccess]


@pytest.mark.parametrize(("tables", "spec", "access", "reason"), [
    ({"training": {"channel": "ideal"}}, "label-counts", UpdateAccess, "no single update reaches the server"),
    ({"training": {"channel": "ideal"}}, "saturated-head", ServerAccess, "no single update reaches"),
    ({"training": {"fraction": 0.1}}, "label-counts", AggregateAccess, "the sum of one update"),
    ({"data": {"clients": 1}}, "mandrake", BlindServerAccess, "no server is blind"),
    ({"data": {"nonmembers": 0}}, "gap", QueryAccess, "set data.nonmembers above 0"),
    ({"data": {"auxiliary": 9}}, "lira", QueryAccess, "9 auxiliary images are too few"),
    ({"audit": {"shadows": 0}}, "lira", QueryAccess, "audit.shadows = 0"),
    ({"audit": {"shadows": 3}}, "lira-online", QueryAccess, "3 shadow models; set audit.shadows to 4"),
    ({}, "set-loss(batch_size=500)", QueryAccess, "do not fill batches of 500"),
    ({}, "canary-clients", AggregateAccess, "differential-privacy"),
])  # fmt: skip
def test_what_the_setting_rules_out_is_known_before_training(tables, spec, access, reason):
    assert reason in why_not(tiny(**tables), spec, access)


def test_an_adaptive_attack_lacks_the_shadows_that_only_a_defence_would_train():
    experiment, defended = tiny(audit={"adaptive_shadows": 0}), Variant("fedavg", "clipping")
    assert why_not(experiment, "lira(adaptive=True)", QueryAccess) is None
    assert "audit.shadows = 0" in why_not(experiment, "lira(adaptive=True)", QueryAccess, defended)
    assert why_not(experiment, "lira", QueryAccess, defended) is None


@dataclass(frozen=True, kw_only=True)
class Picky(Attack):
    """An own attack that declares what it cannot work with."""

    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates",)

    def cannot(self, protocol, samples):
        return f"it takes batches of 1, and these are of {protocol.recipe.batch_size}"

    def run(self, access, knowledge, rng):
        return MembershipScores(torch.zeros(len(knowledge.candidates)).numpy())


def test_an_own_attack_says_by_one_method_what_it_cannot_work_with(tmp_path, engine):
    spec = f"{__name__}:Picky"
    assert isinstance(ATTACKS.make(spec), Picky)
    before, after = both_reasons(tiny(), tmp_path, engine, [spec])
    assert before == after == {(spec, QueryAccess): "it takes batches of 1, and these are of 32"}
