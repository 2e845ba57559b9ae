import pytest
import torch

from glasshouse.defences import make_defences
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout

LAYOUT = Layout(("weight", "running_mean"), ((50_000,), (5,)), trainable=50_000)


def private(**options):
    inside = ", ".join(f"{key}={value}" for key, value in options.items())
    return make_defences(f"differential-privacy({inside})")


def test_an_update_is_cut_to_the_norm_and_a_short_one_left_alone():
    long, short = torch.ones(50_005), torch.full((50_005,), 1e-4)
    rng = torch.Generator().manual_seed(0)
    cut = private(norm=2.0).on_update(long, LAYOUT, rng)
    assert cut[:50_000].double().norm() == pytest.approx(2.0, rel=1e-4)  # lengths are in single precision
    assert torch.equal(cut[50_000:], torch.zeros(5))  # what has no bound does not travel
    assert torch.equal(private(norm=2.0).on_update(short, LAYOUT, rng)[:50_000], short[:50_000])


def test_the_noise_on_the_mean_is_the_multiplier_times_one_clients_reach():
    mean = torch.zeros(50_005)
    rng = torch.Generator().manual_seed(0)
    noisy = private(norm=2.0, noise=0.5, clients=8).on_aggregate(mean, LAYOUT, rng)
    assert noisy[:50_000].std() == pytest.approx(0.5 * 2.0 / 8, rel=0.02)
    assert torch.equal(noisy[50_000:], mean[50_000:])


def test_no_noise_leaves_the_mean_as_it_is():
    mean = torch.rand(50_005)
    rng = torch.Generator().manual_seed(0)
    assert torch.equal(private(noise=0, clients=4).on_aggregate(mean, LAYOUT, rng), mean)


@pytest.mark.parametrize("options", [{"norm": 0}, {"noise": -1}, {"clients": 0}, {"clients": 2.5}])
def test_numbers_that_mean_nothing_are_refused(options):
    with pytest.raises(BadInput, match="out of range; it must"):
        private(**options)
