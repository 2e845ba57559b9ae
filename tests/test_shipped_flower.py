"""Flower's own differential privacy as defences and a strategy: the same numbers, and what they are worth."""

import importlib
import importlib.util
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glasshouse import Setting, audit
from glasshouse.defences import make_defences
from glasshouse.defences.accounting import spent
from glasshouse.defences.promise import SUMMING, Conditions
from glasshouse.errors import BadInput
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import numpy_rng, numpy_seeded
from glasshouse.models import build
from glasshouse.verdicts.contradictions import contradictions
from glasshouse.verdicts.pooling import pooled

PLACE = "glasshouse.integrations.flower.shipped"
INSTALLED = importlib.util.find_spec("flwr") is not None
shipped = importlib.import_module(PLACE) if INSTALLED else None
LOCAL = {"clipping_norm": 1.0, "delta": 1e-5}
SIDES = ("DifferentialPrivacyServerSideFixedClipping", "DifferentialPrivacyClientSideFixedClipping")


def needs_flower(test):
    reason = "Flower is missing: pip install 'glasshouse[flower]'"
    return pytest.mark.extras(pytest.mark.skipif(not INSTALLED, reason=reason)(test))


@pytest.fixture
def layout():
    return Layout.of(build("mlp(hidden=(8,))", (1, 8, 8), 10))


def rng(seed=3):
    return torch.Generator().manual_seed(seed)


def conditions(sizes=(40,) * 10, rounds=30, fraction=1.0):
    return Conditions(rounds=rounds, fraction=fraction, sizes=sizes, recipe=Recipe())


@needs_flower
def test_local_dp_sends_what_flowers_functions_make_of_the_update_with_the_same_seed(layout):
    from flwr.supercore.differential_privacy import add_gaussian_noise_inplace, compute_clip_model_update

    delta = torch.randn(layout.size, generator=rng())
    sent = shipped.LocalDpMod(sensitivity=0.1, epsilon=2.0, **LOCAL).on_update(delta, layout, rng())
    arrays = [tensor.numpy().copy() for tensor in layout.named(delta).values()]
    compute_clip_model_update(arrays, [np.zeros_like(array) for array in arrays], 1.0)
    with numpy_seeded(rng()):
        add_gaussian_noise_inplace(arrays, 0.1 * math.sqrt(2 * math.log(1.25e5)) / 2.0)
    assert torch.allclose(sent, torch.cat([torch.from_numpy(array).flatten() for array in arrays]))


@needs_flower
@pytest.mark.parametrize("side", SIDES)
def test_both_sides_cut_updates_to_the_norm_and_add_the_same_noise_to_their_mean(layout, side):
    defence = getattr(shipped, side)(noise_multiplier=2.0, clipping_norm=0.5).settled(conditions())
    delta = torch.randn(layout.size, generator=rng())
    cut = defence.on_update(delta, layout, rng())
    assert cut.norm() == pytest.approx(0.5, rel=1e-5)
    assert torch.cosine_similarity(cut, delta, dim=0) == pytest.approx(1.0, abs=1e-5)
    short = 0.1 * cut
    assert torch.allclose(defence.on_update(short, layout, rng()), short)
    noise = defence.on_aggregate(cut, layout, rng()) - cut
    assert noise.std() == pytest.approx(2.0 * 0.5 / 10, rel=0.1)
    assert torch.equal(defence.on_aggregate(cut, layout, rng()) - cut, noise)


@needs_flower
def test_flowers_clipping_divides_by_zero_where_a_client_changed_nothing(layout):
    defence = shipped.LocalDpMod(sensitivity=0.1, epsilon=2.0, **LOCAL)
    with pytest.raises(ZeroDivisionError):
        defence.on_update(torch.zeros(layout.size), layout, rng())


@needs_flower
def test_local_dp_is_worth_its_epsilon_only_if_the_sensitivity_is_twice_the_norm():
    honest = shipped.LocalDpMod(sensitivity=2.0, epsilon=1.0, **LOCAL)
    (promise,) = honest.promises(conditions(rounds=1))
    assert honest.worth(conditions(rounds=1)) == promise.epsilon < 1.0
    assert promise.epsilon == pytest.approx(spent(honest.multiplier, 1.0, 1, 1e-5, "all")[0], rel=1e-3)
    small = shipped.LocalDpMod(sensitivity=1e-4, epsilon=1.0, **LOCAL)
    assert small.promises(conditions(rounds=1))[0].epsilon == promise.epsilon
    assert small.worth(conditions(rounds=1)) > 1e6
    # The formula is proven for an epsilon below 1, and falls short of one of 10.
    assert shipped.LocalDpMod(sensitivity=2.0, epsilon=10.0, **LOCAL).worth(conditions(rounds=1)) > 10.0
    # Thirty rounds are one of sqrt(30) times the shift.
    z = math.sqrt(2 * math.log(1.25e5)) / math.sqrt(30)
    assert honest.worth(conditions()) == pytest.approx(spent(z, 1.0, 1, 1e-5, "all")[0], rel=0.01)


@needs_flower
@pytest.mark.parametrize("side", SIDES)
def test_fixed_clipping_promises_what_flowers_accountant_says_and_keeps_it_where_clients_are_equal(side):
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    defence = getattr(shipped, side)(noise_multiplier=4.0, clipping_norm=0.5)
    (promise,) = defence.promises(conditions())
    renyi = RdpAccountant().compose(GaussianDpEvent(4.0), 30).get_epsilon(1e-5)
    assert promise.epsilon == pytest.approx(renyi)
    assert SUMMING in promise.trust
    assert defence.multiplier(conditions()) == pytest.approx(4.0)
    assert 0.8 * promise.epsilon < defence.worth(conditions()) < promise.epsilon


@needs_flower
def test_a_client_with_half_the_samples_has_a_fifth_of_the_noise_that_ten_equal_ones_have():
    defence = shipped.DifferentialPrivacyServerSideFixedClipping(noise_multiplier=4.0, clipping_norm=0.5)
    uneven = conditions(sizes=(10,) * 9 + (90,))
    assert defence.multiplier(uneven) == pytest.approx(4.0 / 5)
    assert defence.worth(uneven) > 5 * defence.promises(uneven)[0].epsilon
    # In a cohort of two the largest client may meet the smallest other.
    half = conditions(sizes=(10, 30, 60, 90), fraction=0.5)
    assert defence.multiplier(half) == pytest.approx(4.0 / (2 * 0.9))


def adapted(layout, norms, **options):
    """The clipping norm after a round in which clients send updates of these lengths."""
    name = f"{PLACE}:DifferentialPrivacyServerSideAdaptiveClipping"
    strategy = STRATEGIES.load(name)(noise_multiplier=0.0, **options)
    directions = torch.randn(len(norms), layout.size, generator=rng())
    deltas = directions / directions.norm(dim=1, keepdim=True) * torch.tensor(norms)[:, None]
    updates = tuple(Update(k, 1, delta) for k, delta in enumerate(deltas))
    server = SimpleNamespace(
        vector=torch.zeros(layout.size),
        layout=layout,
        number=0,
        memory=strategy.begin(None),
        rng=lambda name: numpy_rng(0, name),
    )
    delivery = Delivery(deltas.mean(0), len(norms), tuple(range(len(norms))), updates)
    vector, memory = strategy.combine(server, delivery)
    return vector, deltas, float(memory["clipping_norm"])


@needs_flower
def test_adaptive_clipping_cuts_each_update_to_the_norm_and_averages(layout):
    vector, deltas, _ = adapted(layout, [2.0, 3.0, 0.5], initial_clipping_norm=1.0)
    clipped = torch.stack([delta / max(1.0, float(delta.norm())) for delta in deltas])
    assert torch.allclose(vector, clipped.mean(0), atol=1e-6)


@needs_flower
def test_flowers_adaptive_norm_moves_away_from_the_quantile_that_it_is_to_find(layout):
    # Every update is longer than the norm: to clip half of them it would have to grow, and it shrinks.
    *_, norm = adapted(layout, [2.0, 3.0, 4.0, 5.0], initial_clipping_norm=0.1)
    assert norm == pytest.approx(0.1 * math.exp(-0.2 * (1.0 - 0.5)))
    # Every update is shorter: it would have to shrink, and it grows.
    *_, norm = adapted(layout, [2.0, 3.0, 4.0, 5.0], initial_clipping_norm=10.0)
    assert norm == pytest.approx(10 * math.exp(-0.2 * (0.0 - 0.5)))


@needs_flower
def test_adaptive_clipping_refuses_by_flowers_own_rule_a_noise_of_1_for_ten_clients(layout):
    strategy = shipped.DifferentialPrivacyServerSideAdaptiveClipping(noise_multiplier=1.0)
    with pytest.raises(BadInput, match="Flower refuses"):
        strategy.strategy(10)


def tiny(strategy="fedavg", **changed):
    return Setting(
        data={"clients": 3, "members": 60, "nonmembers": 40, "auxiliary": 20, "test": 40},
        model={"name": "mlp(hidden=(16,))"},
        training={"rounds": 2, "local_test": 0, "strategy": strategy},
        audit={"central": False, "curvature": 0, "ladder": False, "attacks": ["gap"]} | changed,
    )


@needs_flower
def test_too_small_a_sensitivity_contradicts_what_canaries_show(tmp_path):
    spec = f"{PLACE}:LocalDpMod(clipping_norm=1.0,sensitivity=0.0001,epsilon=0.5,delta=1e-5)"
    results = audit(tiny(defences=[spec]), out=tmp_path / "run", workers=1, quiet=True)
    (found,) = contradictions(pooled(results.findings))
    assert found.bound.row.attack == "canary-updates"
    assert found.bound.low > 2 * found.spent.value


@needs_flower
def test_the_strategy_runs_in_an_audit_by_its_name(tmp_path):
    name = f"{PLACE}:DifferentialPrivacyServerSideAdaptiveClipping(noise_multiplier=0.1)"
    results = audit(tiny(name, defences=[]), out=tmp_path / "run", workers=1, quiet=True)
    assert {row.strategy for row in results.findings} == {name}


@needs_flower
@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("LocalDpMod", "missing"),
        ("LocalDpMod(clipping_norm=0,sensitivity=1,epsilon=1,delta=1e-5)", "is out of range"),
        (f"{SIDES[0]}(noise_multiplier=-1,clipping_norm=1)", "is out of range"),
    ],
)
def test_options_that_mean_nothing_are_refused(spec, match):
    with pytest.raises(BadInput, match=match):
        make_defences(f"{PLACE}:{spec}")


@pytest.mark.parametrize("name", ["LocalDpMod", *SIDES])
def test_without_flower_one_line_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    options = "clipping_norm=1,sensitivity=1,epsilon=1,delta=1e-5" if "Local" in name else ""
    options = options or "noise_multiplier=1,clipping_norm=1"
    with pytest.raises(BadInput, match=r"needs? Flower .*glasshouse\[flower\]'$"):
        make_defences(f"{PLACE}:{name}({options})")
