"""All defences: the catalogue, what a coarse pass keeps, compositions, and a whole search, a small one."""

import doctest
import sys
from typing import Any

import pytest
import torch
from report_runs import a_row
from torch import Tensor

from glasshouse import cli
from glasshouse.auditing import catalogue
from glasshouse.auditing.catalogue import CATALOGUE, Entry, composed, singles
from glasshouse.auditing.experiment import check_defence
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.search import best_options, cheap_attacks, compositions
from glasshouse.auditing.setting import EXAMPLE, Setting
from glasshouse.defences import DEFENCES
from glasshouse.defences.defence import Defence
from glasshouse.errors import BadInput
from glasshouse.findings import from_row
from glasshouse.learning.layout import Layout
from glasshouse.registry import Registry
from glasshouse.verdicts.frontier import frontier
from glasshouse.verdicts.limits import DEFAULT, read_limits
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.weighing import Option, weigh

UTILITY = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}
SERVER = {
    "adversary": "curious server",
    "attack": "label-counts",
    "family": "labels",
    "metric": "label-overlap",
}


def rows_of(defence: str, accuracy: float, auc: float, overlap: float) -> list[dict[str, Any]]:
    """A defence's accuracy, what an outsider gets and what a server gets."""
    utility = a_row(**UTILITY, defence=defence, value=accuracy, low=accuracy - 0.01, high=accuracy + 0.01)
    outsider = a_row(defence=defence, value=auc, low=auc - 0.02, high=auc + 0.02, attack="lira")
    server = a_row(**SERVER, defence=defence, value=overlap, low=overlap - 0.02, high=overlap + 0.02)
    return [utility, outsider, server]


def options(**found: tuple[float, float, float]) -> list[Option]:
    rows = [row for name, numbers in found.items() for row in rows_of(name, *numbers)]
    return weigh(frontier(pooled(map(from_row, rows))), DEFAULT)


def test_every_defence_of_the_catalogue_can_be_made_and_goes_with_the_example():
    for defence in singles(evasion=True):
        check_defence(EXAMPLE, defence)
    assert "pruning(fraction=0.95)" in singles()
    assert not any(spec.startswith("adversarial-training") for spec in singles())
    assert any(spec.startswith("adversarial-training") for spec in singles(evasion=True))


def test_a_defence_that_is_not_registered_is_left_out(monkeypatch):
    monkeypatch.setattr(catalogue, "CATALOGUE", (*CATALOGUE, Entry("not-written-yet", ("a=1",))))
    assert not any(spec.startswith("not-written-yet") for spec in singles())


@pytest.mark.parametrize(("first", "second", "together"), [
    ("gaussian-noise(std=0.1)", "pruning(fraction=0.9)", "pruning(fraction=0.9)+gaussian-noise(std=0.1)"),
    ("clipping", "vet", "vet+clipping"),
    ("pruning(fraction=0.7)", "pruning(fraction=0.9)", None),
    ("gaussian-noise", "laplacian-noise", None),
    ("vet+clipping", "gaussian-noise", "vet+clipping+gaussian-noise"),
    ("my_lab:Mine(a=1)", "clipping", "clipping+my_lab:Mine(a=1)"),
])  # fmt: skip
def test_defences_compose_in_the_catalogues_order(first, second, together):
    assert composed(first, second) == together


def test_only_defences_that_complete_each_other_are_composed():
    found = options(
        none=(0.9, 0.9, 0.9),
        clipping=(0.9, 0.52, 0.9),
        pruning=(0.88, 0.9, 0.52),
        vet=(0.87, 0.9, 0.52),
        **{"gaussian-noise": (0.5, 0.52, 0.52)},
    )
    assert compositions(found) == ["pruning+clipping"]


def test_the_best_keep_most_limits_at_a_price_that_may_be_paid():
    found = options(
        none=(0.9, 0.9, 0.9),
        dear=(0.5, 0.52, 0.52),
        weak=(0.9, 0.52, 0.9),
        good=(0.85, 0.52, 0.52),
        better=(0.88, 0.52, 0.52),
    )
    assert best_options(found)[:3] == ["better", "good", "weak"]


def test_the_coarse_pass_keeps_the_strongest_attack_of_each_adversary_and_family():
    setting = Setting(audit={"attacks": ["gap", "lira", "label-counts", "source-inference", "pgd"]})
    rows = [*rows_of("none", 0.9, 0.6, 0.9), a_row(attack="gap", value=0.55, low=0.53, high=0.57)]
    rows.append(a_row(**SERVER | {"adversary": "blind server"}, value=0.5, low=0.4, high=0.6))
    evasion = {"family": "evasion", "adversary": "owner", "attack": "pgd", "metric": "robust-accuracy"}
    rows.append(a_row(**evasion, value=0.2, low=0.1, high=0.3, chance=0.9))
    measures = pooled(map(from_row, rows))

    def kept(limits):
        return {(a.spec, a.access.adversary) for a in cheap_attacks(setting, measures, limits)}

    cheap = {("lira", "outsider"), ("label-counts", "curious server"), ("label-counts", "blind server")}
    assert kept(DEFAULT) == cheap
    assert kept(read_limits({"owner": {"robust-accuracy": 0.5}})) == cheap | {("pgd", "owner")}


@pytest.fixture(scope="module")
def small() -> Setting:
    return Setting(
        data={"clients": 3, "members": 60, "nonmembers": 60, "auxiliary": 60, "test": 60},
        model={"name": "mlp"},
        training={"rounds": 2, "lr": 0.1},
        audit={
            "attacks": ["loss-threshold", "gap", "label-counts"],
            "defences": ["all", "clipping(norm=2.0)"],
            "central": False,
            "curvature": 0,
            "shadows": 0,
            "ladder": False,
        },
    )


def test_a_search_tries_the_catalogue_and_attacks_the_best_with_everything(small, tmp_path, monkeypatch):
    few = tuple(entry for entry in CATALOGUE if entry.name in ("pruning", "vet"))
    monkeypatch.setattr(catalogue, "CATALOGUE", few)
    monkeypatch.setattr("glasshouse.auditing.search.FULL", 1)
    results = run_audit(small, out=tmp_path / "run", workers=1, quiet=True)
    attacks = {}
    for finding in results.findings:
        if finding.attack:
            attacks.setdefault(finding.defence, set()).add(finding.attack)
    assert {"none", "vet", "pruning(fraction=0.7)", "clipping(norm=2.0)"} <= set(attacks)
    full = {"loss-threshold", "gap", "label-counts"}
    assert attacks["none"] == attacks["clipping(norm=2.0)"] == full
    met_all = [name for name, met in attacks.items() if met == full]
    assert len(met_all) == 3
    assert all(met < full for name, met in attacks.items() if name not in met_all)
    found = frontier(pooled(results.findings))
    assert {choice.defence for choice in found.choices if not choice.partial} == set(met_all)
    assert all(choice.accuracy is not None for choice in found.choices)
    keys = [(f.defence, f.attack, f.adversary, f.metric) for f in results.findings]
    assert len(keys) == len(set(keys))


def test_further_seeds_repeat_what_the_first_one_chose(small, tmp_path, monkeypatch):
    few = tuple(entry for entry in CATALOGUE if entry.name == "pruning")
    monkeypatch.setattr(catalogue, "CATALOGUE", few)
    monkeypatch.setattr("glasshouse.auditing.search.FULL", 1)
    results = run_audit(small, out=tmp_path / "run", seeds=2, workers=1, quiet=True)

    def asked(seed):
        return {(f.defence, f.attack, f.adversary, f.metric) for f in results.findings if f.seed == seed}

    assert asked(0) == asked(1)


def test_a_defence_that_does_not_go_with_the_setting_is_left_out_with_the_reason(
    small, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(catalogue, "CATALOGUE", (Entry("differential-privacy"), Entry("vet")))
    setting = small.model_copy(update={
        "training": small.training.model_copy(update={"strategy": "scaffold"}),
        "audit": small.audit.model_copy(update={"defences": ("all",), "attacks": ("gap",)}),
    })  # fmt: skip
    results = run_audit(setting, out=tmp_path / "run", workers=1)
    assert {finding.defence for finding in results.findings} == {"none", "vet"}
    assert "differential-privacy is left out of the search" in capsys.readouterr().err


class Untrainable(Defence):
    """Is refused only once it is trained with, as some are by a network."""

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        raise BadInput("batch norm does not go with it; take group norm")


def test_a_defence_that_turns_out_not_to_be_trainable_is_left_out(small, tmp_path, capsys, monkeypatch):
    registry = Registry("defence", {"untrainable": f"{__name__}:Untrainable", "vet": DEFENCES.places["vet"]})
    monkeypatch.setattr("glasshouse.defences.DEFENCES", registry)
    monkeypatch.setattr(catalogue, "DEFENCES", registry)
    monkeypatch.setattr(catalogue, "CATALOGUE", (Entry("untrainable"), Entry("vet")))
    audit = small.audit.model_copy(update={"defences": ("all",), "attacks": ("gap",)})
    results = run_audit(small.model_copy(update={"audit": audit}), out=tmp_path / "run", workers=1)
    assert {finding.defence for finding in results.findings} == {"none", "vet"}
    assert "untrainable is left out of the search: batch norm" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "defences"), [
    (("--defences", "all"), ("all",)),
    (("--defences", "none"), ()),
    (("--defences", "vet", "--defences", "clipping+pruning"), ("vet", "clipping+pruning")),
    ((), EXAMPLE.audit.defences),
])  # fmt: skip
def test_defences_can_be_named_on_the_command_line(words, defences, monkeypatch):
    asked = []

    def audit(setting, **options):
        asked.append(setting)
        raise BadInput("enough")

    monkeypatch.setattr("glasshouse.api.audit", audit)
    monkeypatch.setattr(sys, "argv", ["glasshouse", "audit", *words])
    with pytest.raises(SystemExit):
        cli.main()
    assert asked[0].audit.defences == defences


def test_a_finished_model_has_no_defences_to_search(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["glasshouse", "audit", "--members", "a.npz", "--defences", "all"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "a finished model is not trained" in capsys.readouterr().err


def test_the_docstrings_hold():
    assert doctest.testmod(catalogue).failed == 0
