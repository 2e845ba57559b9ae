"""NVIDIA FLARE's own filters as defences: the same numbers as FLARE's, and what they are worth."""

import importlib.util
import math

import numpy as np
import pytest
import torch

from glasshouse import Setting, audit
from glasshouse.defences import make_defences
from glasshouse.defences.promise import Conditions
from glasshouse.errors import BadInput
from glasshouse.integrations.flare.shipped import PercentilePrivacy, SVTPrivacy
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build
from glasshouse.verdicts.contradictions import contradictions
from glasshouse.verdicts.pooling import pooled

PLACE = "glasshouse.integrations.flare.shipped"
INSTALLED = importlib.util.find_spec("nvflare") is not None


def needs_flare(test):
    reason = "NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'"
    return pytest.mark.extras(pytest.mark.skipif(not INSTALLED, reason=reason)(test))


@pytest.fixture
def layout():
    return Layout.of(build("mlp(hidden=(8,))", (1, 8, 8), 10))


def rng(seed=3):
    return torch.Generator().manual_seed(seed)


def conditions(layout, rounds=1):
    return Conditions(rounds=rounds, fraction=1.0, sizes=(40,) * 10, recipe=Recipe(), entries=layout.size)


def through_flare(own, delta, layout, steps):
    """What FLARE makes of the update when a client of its own sends it."""
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.fl_context import FLContext

    named = {name: tensor.numpy().copy() for name, tensor in layout.named(delta).items()}
    dxo = DXO(DataKind.WEIGHT_DIFF, named, {MetaKey.NUM_STEPS_CURRENT_ROUND: steps})
    kept = from_shareable(own.process(dxo.to_shareable(), FLContext())).data
    return torch.cat([torch.from_numpy(np.asarray(kept[name])).flatten() for name in layout.names])


@needs_flare
@pytest.mark.parametrize("steps", [1, 5])
def test_percentile_privacy_sends_what_flares_filter_sends(layout, steps):
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy as Own

    delta = 0.1 * torch.randn(layout.size, generator=rng())
    sent = PercentilePrivacy(percentile=40, steps=steps).on_update(delta, layout, rng())
    assert torch.equal(sent, through_flare(Own(percentile=40), delta, layout, steps))
    assert (sent == 0).double().mean() == pytest.approx(0.4, abs=0.01)
    assert sent.abs().max() <= 0.01 * steps + 1e-7


@needs_flare
def test_svt_privacy_sends_what_flares_filter_sends_with_the_same_seed(layout):
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy as Own

    delta = 0.1 * torch.randn(layout.size, generator=rng())
    sent = SVTPrivacy(gamma=0.01, noise_var=1.0).on_update(delta, layout, rng())
    np.random.seed(int(torch.randint(2**32, (1,), generator=rng())))
    assert torch.equal(sent, through_flare(Own(gamma=0.01, noise_var=1.0), delta, layout, 1))


@needs_flare
def test_the_same_draw_sends_the_same_update_and_leaves_numpys_own_numbers_alone(layout):
    delta = torch.randn(layout.size, generator=rng())
    np.random.seed(7)
    expected = np.random.random(2)
    np.random.seed(7)
    np.random.random()
    first, again, other = (SVTPrivacy().on_update(delta, layout, rng(seed)) for seed in (1, 1, 2))
    assert np.random.random() == expected[1]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@needs_flare
def test_at_its_default_svt_privacy_sends_a_tenth_of_the_entries_and_hardly_anything_of_them(layout):
    delta = torch.randn(layout.size, generator=rng())
    sent = SVTPrivacy().on_update(delta, layout, rng())
    # Drawn with replacement out of the accepted half: 1 - exp(-0.2) of it, which is 9% of all.
    assert 0.08 < (sent != 0).double().mean() < 0.1
    # Laplace noise of the scale 2 gamma / noise_var = 2e-4, twenty times what an entry may be.
    assert sent[sent != 0].abs().mean() == pytest.approx(2e-4, rel=0.25)


@needs_flare
def test_a_round_costs_what_flares_ledger_books_however_small_the_argument_epsilon_is(layout):
    c = math.ceil(0.1 * layout.size)
    assert SVTPrivacy().ledger(layout.size) == pytest.approx(0.1 + 0.1 * c)
    assert SVTPrivacy(epsilon=1e-6).ledger(layout.size) == pytest.approx(0.1 * c, rel=1e-4)
    # 703,329 values: those of an update of 7 million entries, of which a user reports 70,333.
    assert 0.1 + 0.1 * SVTPrivacy().released(7_033_290) == pytest.approx(70_333, abs=0.5)
    (promise,) = SVTPrivacy().promises(conditions(layout, rounds=30))
    assert promise.epsilon == pytest.approx(30 * (0.1 + 0.1 * c))
    assert promise.trust == ""
    (at_its_word,) = SVTPrivacy(promised="epsilon").promises(conditions(layout, rounds=30))
    assert at_its_word.epsilon == pytest.approx(3.0)


@needs_flare
@pytest.mark.parametrize("rounds", [1, 30])
def test_the_worth_of_svt_privacy_is_that_of_its_laplace_noise_by_dp_accounting(layout, rounds):
    from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

    count = SVTPrivacy().released(layout.size) * rounds
    loss = from_laplace_mechanism(10.0, value_discretization_interval=1e-4).self_compose(count)
    tight = 0.1 * rounds + loss.get_epsilon_for_delta(1e-5)
    assert tight - 0.1 < SVTPrivacy().worth(conditions(layout, rounds)) < 1.3 * tight
    assert SVTPrivacy().worth(conditions(layout, rounds)) <= rounds * SVTPrivacy().ledger(layout.size)


@needs_flare
def test_percentile_privacy_promises_nothing(layout):
    assert PercentilePrivacy().promises(conditions(layout)) == ()


def tiny(**changed):
    return Setting(
        data={"clients": 3, "members": 60, "nonmembers": 40, "auxiliary": 20, "test": 40},
        model={"name": "mlp(hidden=(16,))"},
        training={"rounds": 3, "local_test": 0},
        audit={"central": False, "curvature": 0, "ladder": False, "attacks": ["gap"]} | changed,
    )


@needs_flare
def test_taken_at_its_word_the_argument_epsilon_contradicts_what_canaries_show(tmp_path):
    spec = f"{PLACE}:SVTPrivacy(promised='epsilon')"
    results = audit(tiny(defences=[spec]), out=tmp_path / "run", workers=1, quiet=True)
    assert {row.attack for row in results.findings if row.family == "canary-clients"} == {"canary-updates"}
    (found,) = contradictions(pooled(results.findings))
    assert found.spent.value == pytest.approx(0.3)
    assert found.bound.low > 2 * found.spent.value
    assert "taken for what a round costs" in found.spent.row.note


@needs_flare
@pytest.mark.parametrize(
    "spec", ["SVTPrivacy(fraction=0)", "SVTPrivacy(promised='much')", "PercentilePrivacy(percentile=101)"]
)
def test_options_that_mean_nothing_are_refused(spec):
    with pytest.raises(BadInput, match="is out of range"):
        make_defences(f"{PLACE}:{spec}")


@pytest.mark.parametrize("name", ["SVTPrivacy", "PercentilePrivacy"])
def test_without_flare_one_line_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nvflare", None)
    monkeypatch.setitem(__import__("sys").modules, "nvflare.apis.dxo", None)
    with pytest.raises(BadInput, match=r"^FLARE's filters need NVIDIA FLARE .*glasshouse\[nvflare\]'$"):
        make_defences(f"{PLACE}:{name}")
