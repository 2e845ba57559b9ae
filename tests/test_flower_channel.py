"""Flower's SecAgg+ through the channel interface; where Flower is missing, only its error is checked."""

import importlib.util
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.channels.channel import Ideal, RoundFailed
from glasshouse.federation.channels.flower import FlowerSecAgg
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.updates import Update

INSTALLED = importlib.util.find_spec("flwr") is not None


def needs_flower(test):
    reason = "Flower is missing: pip install 'glasshouse[flower]'"
    return pytest.mark.extras(pytest.mark.skipif(not INSTALLED, reason=reason)(test))


def make_updates(count, length=50, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Update(k, int(rng.integers(1, 300)), torch.from_numpy(rng.normal(size=length)).float())
        for k in range(count)
    ]


@needs_flower
@pytest.mark.parametrize(
    ("count", "options"),
    [
        (2, {}),
        (3, {}),
        (6, {"dropout_before": 1 / 6, "dropout_after": 1 / 6}),
        (9, {"dropout_before": 0.33}),
        (9, {"neighbours": 5}),
        (5, {"bits": 28}),
    ],
)
def test_the_masked_sum_is_the_plain_weighted_mean_to_the_quantisation_step(count, options):
    updates = make_updates(count)
    channel = FlowerSecAgg(**options)
    delivery = channel.deliver(updates, seed=1)
    survivors = [update for update in updates if update.client in delivery.clients]
    plain = Ideal().deliver(survivors, seed=1)
    assert len(survivors) == count - round(channel.dropout_before * count)
    assert delivery.samples == plain.samples
    assert delivery.updates is None
    # an entry is off by up to a step, and a client's weight by half a level
    step = 16 / 2**channel.bits
    largest = max(update.samples for update in updates)
    bound = 2 * step * len(survivors) * largest / delivery.samples + 1e-6
    assert (delivery.mean - plain.mean).abs().max() <= bound


@needs_flower
def test_it_agrees_with_the_other_secure_channel():
    updates = make_updates(4)
    ours, theirs = (channel.deliver(updates, 0).mean for channel in (Secure(), FlowerSecAgg()))
    assert (ours - theirs).abs().max() < 4 * 16 / 2**22


@needs_flower
def test_the_same_seed_gives_the_same_numbers_and_leaves_the_generators_alone():
    updates = make_updates(3)
    np.random.seed(5)
    random.seed(5)
    expected = np.random.rand(), random.random()
    np.random.seed(5)
    random.seed(5)
    first, second = (FlowerSecAgg().deliver(updates, seed=3).mean for _ in range(2))
    assert torch.equal(first, second)
    assert (np.random.rand(), random.random()) == expected


@needs_flower
@pytest.mark.parametrize("when", ["dropout_before", "dropout_after"])
def test_too_few_clients_fail_the_round(when):
    with pytest.raises(RoundFailed, match="too few clients are left; nothing"):
        FlowerSecAgg(**{when: 0.5}).deliver(make_updates(6), seed=0)


@needs_flower
def test_an_update_that_is_not_finite_is_a_line_for_the_user():
    updates = make_updates(3)
    updates[1].delta[0] = float("nan")
    with pytest.raises(BadInput, match="client 1: the update holds NaN"):
        FlowerSecAgg().deliver(updates, seed=0)


@pytest.mark.skipif(INSTALLED, reason="Flower is installed")
def test_without_flower_the_error_names_the_extra():
    with pytest.raises(BadInput, match=r"pip install 'glasshouse\[flower\]'"):
        FlowerSecAgg().deliver(make_updates(3), seed=0)


def test_without_flower_the_import_names_the_extra():
    code = "import sys; sys.modules['flwr'] = None; import glasshouse.integrations.flower"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'glasshouse[flower]'" in done.stderr


def test_too_many_clients_for_the_modulus_are_refused():
    with pytest.raises(BadInput, match="overflow Flower's sum"):
        FlowerSecAgg(bits=30).deliver(make_updates(5), seed=0)


def test_one_client_alone_is_never_summed():
    with pytest.raises(RoundFailed, match="at least 2 clients"):
        FlowerSecAgg().deliver(make_updates(1), 0)


@pytest.mark.parametrize(
    "spec",
    [
        "flower(bits=31)",
        "flower(clip=-1)",
        "flower(threshold=1)",
        "flower(neighbours=4)",
        "flower(dropout_after=1)",
    ],
)
def test_options_out_of_range_are_refused(spec):
    with pytest.raises(BadInput, match="out of range"):
        CHANNELS.make(spec)


def test_the_description_names_what_the_channel_does_to_the_numbers():
    described = CHANNELS.make("flower(neighbours=5)").described
    for part in ("SecAgg+", "clipped at 8", "2^22 levels", "2^32", "67% of 5 neighbours"):
        assert part in described
