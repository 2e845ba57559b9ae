"""Secure aggregation as a channel: the sum it delivers, for any drop-outs above the threshold."""

import warnings

import numpy as np
import pytest
import torch

from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.channels.channel import Ideal, RoundFailed
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.secagg.messages import needed
from glasshouse.federation.updates import Update


def make_updates(count, length=40, seed=0, dtype=torch.float32, spread=1.0):
    rng = np.random.default_rng(seed)
    names = rng.permutation(3 * count)[:count]
    return [
        Update(
            int(name), int(rng.integers(1, 200)), torch.from_numpy(spread * rng.normal(size=length)).to(dtype)
        )
        for name in names
    ]


class Vanishing(Secure):
    """The channel with named drop-outs instead of drawn ones."""

    def __init__(self, before, after, **options):
        super().__init__(**options)
        object.__setattr__(self, "named", (set(before), set(after)))

    def _dropouts(self, clients, seed):
        return self.named


@pytest.mark.parametrize("case", range(40))
def test_the_masked_sum_is_the_plain_weighted_mean_for_any_drop_outs_above_the_threshold(case):
    rng = np.random.default_rng(case)
    count = int(rng.integers(2, 14))
    threshold = float(rng.uniform(0.501, 1))
    most = count - needed(count, threshold)
    before = int(rng.integers(0, most + 1))
    after = int(rng.integers(0, most - before + 1))
    bits = int(rng.integers(10, 33))
    updates = make_updates(count, seed=case, dtype=torch.float64)
    gone = [update.client for update in rng.permutation(np.array(updates, dtype=object))][: before + after]
    channel = Vanishing(gone[:before], gone[before:], threshold=threshold, bits=bits)

    delivery = channel.deliver(updates, seed=case)

    survivors = [update for update in updates if update.client not in gone[:before]]
    plain = Ideal().deliver(survivors, seed=case)
    assert delivery.clients == plain.clients
    assert delivery.samples == plain.samples
    assert delivery.updates is None
    # each client is off by at most half a step, in units of the client with the most samples
    half = 8.0 / 2**bits
    bound = half * len(survivors) * max(update.samples for update in updates) / delivery.samples
    assert (delivery.mean - plain.mean).abs().max() <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_drop_out_too_many_fails_the_round(when):
    updates = make_updates(9)
    gone = [update.client for update in updates[:4]]
    channel = Vanishing(gone if when == "before" else [], gone if when == "after" else [])
    with pytest.raises(RoundFailed, match=r"5 of 9 clients sent .*, 6 are needed; nothing of their updates"):
        channel.deliver(updates, seed=0)


def test_drawn_drop_outs_follow_from_the_seed_and_have_the_asked_for_number():
    updates = make_updates(10)
    channel = Secure(dropout_before=0.2, dropout_after=0.1)
    first, second, other = (channel.deliver(updates, seed) for seed in (1, 1, 2))
    assert len(first.clients) == 8
    assert first.clients == second.clients != other.clients
    assert torch.equal(first.mean, second.mean)


def test_the_mean_keeps_the_precision_of_the_updates():
    for dtype in (torch.float32, torch.float64):
        assert Secure().deliver(make_updates(3, dtype=dtype), 0).mean.dtype == dtype


def test_entries_that_are_zero_for_all_stay_exactly_zero():
    updates = make_updates(4)
    for update in updates:
        update.delta[::2] = 0
    assert (Secure().deliver(updates, 0).mean[::2] == 0).all()


def test_the_updates_are_left_as_they_were():
    updates = make_updates(3)
    copies = [update.delta.clone() for update in updates]
    Secure().deliver(updates, 0)
    assert all(torch.equal(update.delta, copy) for update, copy in zip(updates, copies))


def test_clipping_is_told_for_all_clients_together():
    updates = [Update(k, 10, torch.tensor([20.0 * k, -9.0, 1.0])) for k in range(3)]
    with pytest.warns(UserWarning, match="clipped 10% or more of the entries at 8"):
        delivery = Secure().deliver(updates, 0)
    assert delivery.clipped == 5
    assert torch.allclose(delivery.mean, torch.tensor([16 / 3, -8.0, 1.0]), atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Secure(clip=64.0).deliver(updates, 0).clipped == 0


def test_one_client_alone_is_never_summed():
    with pytest.raises(RoundFailed, match="at least 2 clients"):
        Secure().deliver(make_updates(1), 0)


def test_a_wide_ring_serves_many_levels():
    updates = make_updates(3, dtype=torch.float64)
    delivery = Secure(bits=32).deliver(updates, 0)
    assert (delivery.mean - Ideal().deliver(updates, 0).mean).abs().max() < 1e-8


@pytest.mark.parametrize(
    "spec",
    [
        "secure(clip=0)",
        "secure(clip=1e999)",
        "secure(bits=1)",
        "secure(bits=40)",
        "secure(bits=2.5)",
        "secure(threshold=0.5)",
        "secure(threshold=1.2)",
        "secure(dropout_before=1.0)",
        "secure(dropout_after=-0.1)",
        "secure(dropout_before=0.6, dropout_after=0.4)",
        "secure(levels=3)",
    ],
)
def test_options_out_of_range_are_refused_in_one_line(spec):
    with pytest.raises(BadInput) as caught:
        CHANNELS.make(spec)
    assert "\n" not in str(caught.value)


def test_the_description_names_what_the_channel_does_to_the_numbers():
    described = CHANNELS.make("secure(dropout_before=0.1)").described
    for part in ("clipped at 8", "2^22 levels", "2^32", "67%", "10%", "0% after"):
        assert part in described
