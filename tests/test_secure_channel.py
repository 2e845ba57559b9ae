"""Secure aggregation as a channel: the sum it delivers, for any drop-outs above the threshold."""

import dataclasses
import warnings
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS, secure
from glasshouse.federation.channels.channel import Ideal, RoundFailed
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.secagg.client import Client
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
        "secure(neighbours=0)",
        "secure(neighbours=5)",
        "secure(neighbours=-2)",
        "secure(neighbours=4.0)",
        "secure(neighbours=True)",
        "secure(neighbours='many')",
        "secure(neighbours=[4])",
        "secure(neighbours=1000000)",
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


@pytest.mark.parametrize("neighbours", [2, 6, "auto", 100])
def test_with_neighbours_the_sum_is_the_same_to_the_last_bit(neighbours):
    updates = make_updates(12)
    whole = Secure(dropout_before=0.1).deliver(updates, 3)
    sparse = Secure(dropout_before=0.1, neighbours=neighbours, threshold=0.51).deliver(updates, 3)
    assert sparse.clients == whole.clients
    assert torch.equal(sparse.mean, whole.mean)


def test_too_few_neighbours_left_of_one_client_fail_the_round_in_one_line():
    updates = make_updates(30)
    channel = Secure(neighbours=2, dropout_before=0.2)  # two of three holders are needed
    with pytest.raises(RoundFailed, match=r"1 of 3 clients that hold client \d+'s shares sent") as caught:
        channel.deliver(updates, seed=0)
    assert "\n" not in str(caught.value)


def test_the_description_of_neighbours_gives_their_guarantee():
    described = CHANNELS.make("secure(neighbours=64, dropout_after=0.05)").described
    for part in ("64 random neighbours", "44 of 65", "20%", "2e-15", "5e-12"):
        assert part in described
    assert "as many as their number calls for" in CHANNELS.make("secure(neighbours='auto')").described
    assert "neighbours" not in Secure().described


def changed(updates, place, **fields):
    return [*updates[:place], dataclasses.replace(updates[place], **fields), *updates[place + 1 :]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delta": torch.zeros(39)}, "its update is torch.float32 of 39 entries, client .* all clients must"),
        (
            {"delta": torch.zeros(40, dtype=torch.float64)},
            "torch.float64 of 40 entries, client .* all clients",
        ),
        ({"delta": torch.zeros(1)}, "its update is torch.float32 of 1 entries"),
        ({"delta": torch.zeros(0)}, r"its update has shape \(0,\); give a vector"),
        ({"delta": torch.zeros(4, 10)}, r"its update has shape \(4, 10\); give a vector"),
        ({"delta": torch.zeros(())}, r"its update has shape \(\); give a vector"),
        ({"delta": torch.zeros(40, dtype=torch.int64)}, "its update is torch.int64; give torch.float32"),
        ({"delta": torch.zeros(40, dtype=torch.float16)}, "its update is torch.float16; give torch.float32"),
        (
            {"delta": torch.zeros(40, dtype=torch.bfloat16)},
            "its update is torch.bfloat16; give torch.float32",
        ),
        ({"samples": -1}, "has -1 samples; give a number from 0"),
    ],
)
def test_updates_that_cannot_be_summed_are_refused_in_one_line(fields, message):
    with pytest.raises(BadInput, match=message) as caught:
        Secure().deliver(changed(make_updates(5), 2, **fields), 0)
    assert "\n" not in str(caught.value)


def test_a_client_that_is_named_twice_and_rounds_without_samples_are_refused():
    updates = make_updates(4)
    with pytest.raises(BadInput, match=f"client {updates[0].client} is in the round twice"):
        Secure().deliver(changed(updates, 2, client=updates[0].client), 0)
    with pytest.raises(BadInput, match="no client has any samples"):
        Secure().deliver([dataclasses.replace(update, samples=0) for update in updates], 0)


class Forger(Client):
    """Client 2 reveals a wrong share of everyone's seed, or sends a vector of one word."""

    def reveal(self, request):
        revealed = super().reveal(request)
        wrong = dict.fromkeys(revealed.seeds, bytes(16))
        return dataclasses.replace(revealed, seeds=wrong) if self.name == 2 else revealed


class Cutter(Client):
    def mask(self, inbox, delta):
        masked = super().mask(inbox, delta)
        return dataclasses.replace(masked, words=masked.words[:1]) if self.name == 2 else masked


class Refusing(Client):
    def share(self, keys):
        if self.name == 2:
            raise self._refusal("it does not like the weather")
        return super().share(keys)


@pytest.mark.parametrize(
    ("client", "warning", "left"),
    [
        (Forger, "client 2 forged 6 of 6 shares, first client 0's", 6),
        (Cutter, r"client 2 sent a vector of uint32 of shape \(1,\), uint32 of shape \(41,\) is needed", 5),
        (Refusing, "client 2 refuses: it does not like the weather", 5),
    ],
)
def test_one_dishonest_client_is_named_and_the_mean_is_right(monkeypatch, client, warning, left):
    monkeypatch.setattr(secure, "Client", client)
    updates = [dataclasses.replace(update, client=k) for k, update in enumerate(make_updates(6))]
    with pytest.warns(UserWarning, match=warning):
        delivery = Secure().deliver(updates, 0)
    arrived = [update for update in updates if left == 6 or update.client != 2]
    plain = Ideal().deliver(arrived, 0)
    assert delivery.clients == plain.clients
    assert torch.allclose(delivery.mean, plain.mean, atol=1e-4)


def test_updates_are_read_one_at_a_time():
    class OnDisk(Sequence):
        alive = most = 0

        def __len__(self):
            return 8

        def __getitem__(self, place):
            if place >= len(self):
                raise IndexError
            delta = torch.full((40,), float(place))
            OnDisk.alive += 1
            OnDisk.most = max(OnDisk.most, OnDisk.alive)
            weakref.finalize(delta, self._gone)
            return Update(place, 1, delta)

        @staticmethod
        def _gone():
            OnDisk.alive -= 1

    delivery = Secure().deliver(OnDisk(), 0)
    assert torch.allclose(delivery.mean, torch.full((40,), 3.5), atol=1e-4)
    assert OnDisk.most <= 2
