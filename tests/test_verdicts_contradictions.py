import dataclasses

from typer.testing import CliRunner

from glasshouse import api, cli
from glasshouse.findings import Finding
from glasshouse.results import Results
from glasshouse.verdicts.contradictions import contradictions
from glasshouse.verdicts.pooling import pooled

SPENT = Finding(
    source="audit",
    cell="fedavg/dp-sgd/record",
    family="privacy",
    defence="dp-sgd",
    strategy="fedavg",
    data="digits",
    model="lenet",
    metric="epsilon-spent-record",
    value=1.0,
    n=100,
    seed=0,
)


def bound(value, **changes):
    row = dataclasses.replace(
        SPENT,
        cell="dp-sgd/canary-records",
        family="canary-records",
        adversary="outsider",
        attack="canary-records",
        metric="epsilon-delta-lower-bound",
        value=value,
        low=value,
        chance=0.0,
        n=500,
    )
    return dataclasses.replace(row, **changes)


def found(*rows):
    return contradictions(pooled(rows))


def test_a_bound_above_what_was_spent_is_a_contradiction_and_one_below_is_none():
    (one,) = found(SPENT, bound(1.5))
    assert one.defence == "dp-sgd"
    assert (one.bound.low, one.spent.value) == (1.5, 1.0)
    for word in ("canary-records", "1.5", "record", "one of the two is wrong"):
        assert word in one.words
    assert found(SPENT, bound(0.9)) == []
    assert found(SPENT, bound(1.0)) == []


def test_only_bounds_of_the_same_unit_defence_and_training_are_compared():
    assert found(SPENT, bound(9.0, metric="epsilon-delta-lower-bound-client")) == []
    assert found(SPENT, bound(9.0, defence="none")) == []
    assert found(SPENT, bound(9.0, strategy="fedprox")) == []
    assert found(SPENT, bound(9.0, model="mlp")) == []
    client = dataclasses.replace(SPENT, metric="epsilon-spent-client")
    (one,) = found(SPENT, client, bound(9.0, metric="epsilon-delta-lower-bound-client"))
    assert one.spent.row.metric == "epsilon-spent-client"


def test_the_interval_decides_and_a_pure_epsilon_contradicts_nothing():
    assert found(SPENT, bound(1.5, low=0.8)) == []
    assert found(SPENT, bound(1.5, low=None)) == []
    assert found(SPENT, bound(1.5, metric="epsilon")) == []


def test_without_a_promise_or_a_bound_there_is_nothing_to_contradict():
    endless = dataclasses.replace(SPENT, value=None, reason="no noise is added")
    assert found(endless, bound(9.0)) == []
    assert found(bound(9.0)) == []
    assert found(SPENT, dataclasses.replace(bound(9.0), value=None, low=None, reason="none")) == []


def test_over_several_seeds_the_weakest_bound_decides():
    seeds = [SPENT, dataclasses.replace(SPENT, seed=1), bound(1.5), bound(0.7, seed=1)]
    assert found(*seeds) == []
    (one,) = found(*seeds[:3], bound(1.2, seed=1))
    assert one.bound.low == 1.2


def test_the_farthest_above_comes_first():
    first, second = found(SPENT, bound(1.5), bound(3.0, attack="lira", cell="dp-sgd/lira"))
    assert (first.bound.row.attack, second.bound.row.attack) == ("lira", "canary-records")


def test_an_audit_with_a_contradiction_prints_it_and_ends_with_exit_code_1(monkeypatch, tmp_path):
    rows = [SPENT, bound(1.5)]
    monkeypatch.setattr(api, "audit", lambda *a, **k: Results(tmp_path, tuple(rows)))
    failed = CliRunner().invoke(cli.app, ["audit", "--quiet"])
    assert failed.exit_code == 1
    assert "one of the two is wrong" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
    assert failed.stdout.strip() == str(tmp_path)
    rows[1] = bound(0.5)
    passed = CliRunner().invoke(cli.app, ["audit", "--quiet"])
    assert (passed.exit_code, passed.stderr) == (0, "")
