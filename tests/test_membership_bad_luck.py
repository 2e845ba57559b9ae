"""Settings in which membership attacks cannot do what they are asked: a reason each, never a traceback."""

import numpy as np
import pytest
import torch
from conftest import make_images
from torch import nn

from glasshouse import Setting, audit
from glasshouse.access import PayloadAccess
from glasshouse.attacks import ATTACKS
from glasshouse.auditing.run import run_audit
from glasshouse.evidence.batches import compose

EVERY = tuple(
    name
    for name in ATTACKS
    if ATTACKS.load(name).family in ("membership", "source")
    and ATTACKS.load(name).needs != (PayloadAccess,)  # FedAvg's server sends nothing to read
    and name != "gap"
)
BATCHES = ("mia-bad(protocol='batch-batch',batch_size=512)", "set-loss(batch_size=512)")


def tiny(data=None, training=None, audited=None) -> Setting:
    return Setting(
        data={"clients": 4, "members": 60, "nonmembers": 60, "auxiliary": 200, "test": 50} | (data or {}),
        model={"name": "mlp"},
        training={"rounds": 2, "local_test": 0} | (training or {}),
        audit={"attacks": EVERY, "defences": (), "central": False, "shadows": 4, "curvature": 0}
        | (audited or {}),
    )


def reasons(setting, tmp_path, run=run_audit, **objects) -> dict[tuple[str, str], str]:
    """Why attacks could not run, by adversary and attack; the others have an AUC."""
    found = run(setting, out=tmp_path / "run", workers=1, quiet=True, **objects).findings
    assert not {row.attack for row in found if row.metric == "auc" and row.value is None}
    return {(row.adversary, row.attack): row.reason for row in found if row.metric == "not-applicable"}


def test_every_membership_attack_runs_where_it_can(tmp_path):
    assert reasons(tiny(data={"nonmembers": 90}), tmp_path) == {}


@pytest.mark.parametrize(("luck", "named"), [
    ({"data": {"auxiliary": 0}}, "data.auxiliary"),
    ({"data": {"auxiliary": 5}}, "data.auxiliary"),
    ({"data": {"nonmembers": 0}}, "data.nonmembers"),
    ({"audited": {"shadows": 0}}, "audit.shadows"),
    ({"audited": {"shadows": 2}}, "audit.shadows"),
    ({"audited": {"attacks": BATCHES}}, "batches of 512"),
])  # fmt: skip
def test_what_a_setting_lacks_is_named_with_its_remedy(luck, named, tmp_path):
    assert any(named in reason for reason in reasons(tiny(**luck), tmp_path).values())


def test_a_target_that_diverged_is_no_traceback(tmp_path):
    found = reasons(tiny(training={"lr": 1e6}, audited={"curvature": 50}), tmp_path, run=audit)
    assert all("finite" in reason or "lower" in reason for reason in found.values())


def test_shadows_that_diverged_are_named(tmp_path, monkeypatch):
    def diverged(*arguments, **options):
        answers = train(*arguments, **options)
        answers.logits[1] = np.nan
        return answers

    from glasshouse.auditing import shadowing

    train = shadowing.train_shadows
    monkeypatch.setattr(shadowing, "train_shadows", diverged)
    found = reasons(tiny(audited={"attacks": ("lira", "mia-bad")}), tmp_path)
    assert set(found.values()) == {"1 of 4 shadow models answer NaN or infinity; lower training.lr"}


@pytest.mark.parametrize("partition", ["shards(per_client=5)", "iid"])
def test_a_shadow_with_few_images_has_fewer_clients(partition, tmp_path):
    setting = tiny(
        data={"clients": 12, "partition": partition, "auxiliary": 12}, audited={"attacks": ("lira",)}
    )
    results = run_audit(setting, out=tmp_path / "run", workers=1, quiet=True)
    (told,) = {row.assumes[1] for row in results.findings if row.metric == "auc"}
    assert "federations of 12 clients" not in told


def test_shadows_stop_where_the_target_did(tmp_path):
    training = {"rounds": 30, "target_accuracy": 0.15}
    results = run_audit(
        tiny(training=training, audited={"attacks": ("lira",)}), out=tmp_path / "run", workers=1, quiet=True
    )
    told = " ".join(next(row.assumes for row in results.findings if row.metric == "auc"))
    assert "30 x 1 epochs" not in told


def test_one_client_has_no_source_to_find(tmp_path):
    found = reasons(tiny(data={"clients": 1}, audited={"attacks": ("source-inference",)}), tmp_path)
    assert "one client" in found["curious server", "source-inference"]


def test_whole_users_as_members_bound_no_epsilon(tmp_path):
    images = make_images(300)
    users = np.repeat(np.arange(30), 10)
    from glasshouse.data.dataset import Dataset

    setting = tiny(
        data={"clients": 3, "partition": "by-user", "auxiliary": 90}, audited={"attacks": ("loss-threshold",)}
    )
    results = run_audit(
        setting, dataset=Dataset("mine", images, None, users), out=tmp_path / "run", workers=1, quiet=True
    )
    (row,) = [row for row in results.findings if row.metric == "epsilon"]
    assert row.value is None
    assert "users" in row.reason


def test_the_place_in_a_batch_tells_nothing():
    rng = np.random.default_rng(0)
    mixed, _ = compose(np.arange(1000), np.arange(1000, 9000), 8, 0.25, rng)
    members = (mixed < 1000).mean(0)
    assert np.abs(members - 0.25).max() < 0.08


class _Doubling(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


class Unusual(nn.Module):
    """A network with a step that only knows its backward derivative."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return _Doubling.apply(self.layer(x.flatten(1)))


def test_a_network_without_a_forward_derivative_gives_a_reason(tmp_path):
    found = reasons(tiny(audited={"attacks": ("gradient-alignment",)}), tmp_path, model=Unusual())
    assert all("forward derivative" in reason for reason in found.values())
    assert len(found) == 2
