"""The central model as the yardstick of robustness: what an audit measures of both models, and how."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from conftest import make_images, make_plain_model
from torch import nn
from torch.autograd.function import once_differentiable

from glasshouse import Dataset, audit
from glasshouse.auditing.curvature import measured_on
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import make_setting
from glasshouse.evidence.evasion import differences

FGSM = "fgsm(eps=0.1)"
VALUES = {
    "data": {"clients": 4, "members": 120, "nonmembers": 40, "auxiliary": 40, "test": 100},
    "model": {"name": "mlp"},
    "training": {"rounds": 2, "epochs": 3, "batch_size": 16, "lr": 0.2},
    "audit": {"attacks": ["gap", FGSM], "defences": ["clipping(norm=0.5)"], "observe": 2, "curvature": 50},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return audit(make_setting(VALUES), out=tmp_path_factory.mktemp("audit") / "run", workers=1, quiet=True)


@pytest.fixture(scope="module")
def curves(run):
    return json.loads((run.folder / "curves.json").read_text())


def rows(run, metric):
    return {(row.strategy, row.defence): row for row in run.findings if row.metric == metric}


def test_the_central_model_meets_the_evasion_attacks_and_no_others(run):
    central = [row for row in run.findings if row.strategy == "central"]
    assert {row.attack for row in central} == {None, FGSM}
    assert {row.cell for row in central if row.attack} == {f"none/{FGSM}"}
    federated = {row.attack for row in run.findings if row.strategy == "fedavg"}
    assert federated == {None, "gap", FGSM}


@pytest.mark.parametrize("kind", ["robust", "clean"])
def test_the_difference_is_that_of_the_two_accuracies_on_the_same_images(run, kind):
    accuracy, difference = rows(run, f"{kind}-accuracy"), rows(run, f"{kind}-accuracy-over-central")
    assert set(difference) == {("fedavg", "none"), ("fedavg", "clipping(norm=0.5)")}
    for key, row in difference.items():
        assert row.value == pytest.approx(accuracy[key].value - accuracy["central", "none"].value)
        assert row.low <= row.value <= row.high
        assert row.n == 100
        assert row.assumes == accuracy[key].assumes


def test_models_that_agree_on_every_image_do_not_differ_and_pairing_narrows_the_interval():
    right = np.repeat([True, False], [60, 40])
    apart = differences({0.0: right, 0.1: right}, {0.0: right[::-1], 0.1: right})
    assert apart.keys() == {0.0, 0.1}
    assert apart[0.1].value == apart[0.0].value == 0
    width = [apart[eps].high - apart[eps].low for eps in (0.1, 0.0)]
    assert width[0] < width[1] / 3


def test_each_model_has_a_curve_that_begins_without_a_change_and_ends_at_the_finding(run, curves):
    found = Counter((point["strategy"], point["defence"]) for point in curves["robustness"])
    assert found == dict.fromkeys(rows(run, "robust-accuracy"), 2)
    for point in curves["robustness"]:
        metric = "robust-accuracy" if point["eps"] else "clean-accuracy"
        finding = rows(run, metric)[point["strategy"], point["defence"]]
        measured = (point["value"], point["low"], point["high"], point["n"])
        assert measured == (finding.value, finding.low, finding.high, finding.n)
        assert (point["attack"], point["adversary"], point["norm"]) == (FGSM, "owner", "linf")
        if point["strategy"] != "central":
            apart = rows(run, f"{metric}-over-central")[point["strategy"], point["defence"]]
            measured = tuple(point[f"difference{end}"] for end in ("", "_low", "_high"))
            assert measured == (apart.value, apart.low, apart.high)


def test_only_pictures_of_the_undefended_federation_are_kept(run, curves):
    assert {(entry["strategy"], entry["defence"]) for entry in curves["gallery"]} == {("fedavg", "none")}
    assert set(curves) == {
        "training",
        "roc",
        "gallery",
        "risk",
        "robustness",
        "histograms",
        "course",
        "statements",
        "division",
    }
    assert curves["histograms"] == []


def test_every_model_has_its_top_eigenvalue_on_the_same_named_images(run):
    found = rows(run, "top-eigenvalue")
    assert set(found) == {("central", "none"), ("fedavg", "none"), ("fedavg", "clipping(norm=0.5)")}
    for row in found.values():
        assert row.family == "curvature"
        assert row.n == 50
        assert row.low <= row.value <= row.high
        images, effort = row.note.split("; ")
        assert "50 of the 120 training images" in images
        assert "products with the Hessian, relative residual" in effort
        assert row.assumes == ()
    assert len({row.note.split("; ")[0] for row in found.values()}) == 1


def test_the_page_sets_both_models_side_by_side(run):
    page = run.report.read_text()
    assert "How robust is it?" in page
    assert "Does federation cost robustness here?" in page
    assert (run.folder / "figures" / "robustness-linf.svg").is_file()


def test_curvature_can_be_left_out_and_the_central_model_too(tmp_path):
    fewer = VALUES["audit"] | {"defences": [], "curvature": 0, "central": False}
    results = audit(make_setting(VALUES | {"audit": fewer}), out=tmp_path / "run", workers=1, quiet=True)
    assert {row.strategy for row in results.findings} == {"fedavg"}
    assert not [row for row in results.findings if row.family == "curvature"]
    assert not [row for row in results.findings if row.metric.endswith("-over-central")]


def test_curvature_is_measured_on_members_alone_and_on_all_where_they_are_few():
    few, all_of_them = (
        prepare(make_setting(VALUES | {"audit": VALUES["audit"] | {"curvature": most}}))
        for most in (50, 1000)
    )
    members = set(few.split.members.tolist())
    chosen = measured_on(few)
    assert len(set(chosen.tolist())) == 50
    assert set(chosen.tolist()) < members
    assert np.array_equal(chosen, measured_on(few))
    assert set(measured_on(all_of_them).tolist()) == members


class Halved(torch.autograd.Function):
    """Half of its input, whose gradient cannot be differentiated again."""

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient / 2


class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = make_plain_model()

    def forward(self, x):
        return Halved.apply(self.inner(x))


def test_a_model_that_cannot_be_differentiated_twice_has_no_eigenvalue_and_the_audit_goes_on(tmp_path):
    setting = make_setting({"training": {"rounds": 1}, "audit": {"attacks": [FGSM], "defences": []}})
    made = {"dataset": Dataset("stripes", make_images(240)), "model": Once()}
    results = audit(setting, **made, out=tmp_path / "run", workers=1, quiet=True)
    row = rows(results, "top-eigenvalue")["fedavg", "none"]
    assert row.value is None
    assert row.reason
    assert "120 training images" in row.note
    assert rows(results, "robust-accuracy")["fedavg", "none"].value is not None
    assert "How robust is it?" in results.report.read_text()
