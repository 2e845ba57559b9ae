"""Messages that break the protocol: left out and named, or the round fails; the sum is never wrong."""

import dataclasses

import numpy as np
import pytest
import torch
from secagg_rounds import COUNT, LENGTH, Round, looks_uniform, make_terms

from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.secagg.client import Client
from glasshouse.federation.secagg.keys import commit
from glasshouse.federation.secagg.messages import Keys, Masked, Refused
from glasshouse.federation.secagg.server import Server

FORGERIES = [bytes(16), b"", bytes(15), bytes(17), None, 7]
FORGED_IDS = ["other", "empty", "short", "long", "none", "number"]


@pytest.mark.parametrize("share", FORGERIES, ids=FORGED_IDS)
def test_a_forged_seed_share_is_left_out_and_its_sender_named(share):
    played = Round()
    answers = played.answers()
    answers[0] = dataclasses.replace(answers[0], seeds={**answers[0].seeds, 3: share})
    total = played.server.unmask(answers)
    assert (total == played.expected(range(COUNT))).all()
    verb = "withheld" if share is None else "forged"
    assert played.server.faults == [f"client 0 {verb} 1 of 5 shares, first client 3's"]


@pytest.mark.parametrize("share", FORGERIES, ids=FORGED_IDS)
def test_forged_shares_fail_the_round_where_too_few_others_are_left(share):
    played = Round(sending=(0, 1, 2, 4), deltas=torch.zeros(COUNT, 50_000))
    answers = played.answers()
    answers[1] = dataclasses.replace(answers[1], keys={3: share})
    with pytest.raises(RoundFailed) as caught:
        played.server.unmask(answers)
    verb = "withheld" if share is None else "forged"
    assert str(caught.value) == (
        "secure aggregation failed: 3 of 5 clients sent a right share of client 3's masking key, "
        "4 are needed; "
        f"nothing of their updates was revealed; client 1 {verb} 1 of 5 shares, first client 3's"
    )
    assert looks_uniform(played.server.total)


def test_a_missing_share_of_a_survivor_is_named_instead_of_a_key_error():
    played = Round()
    answers = played.answers()
    answers[0] = dataclasses.replace(answers[0], seeds={})
    total = played.server.unmask(answers)
    assert (total == played.expected(range(COUNT))).all()
    assert played.server.faults == ["client 0 withheld 5 of 5 shares, first client 0's"]


def test_a_share_in_another_holders_name_or_of_another_owner_is_a_forgery():
    played = Round()
    answers = played.answers()
    answers[0] = dataclasses.replace(answers[0], seeds={**answers[0].seeds, 3: answers[1].seeds[3]})
    answers[2] = dataclasses.replace(answers[2], seeds={**answers[2].seeds, 4: answers[2].seeds[1]})
    total = played.server.unmask(answers)
    assert (total == played.expected(range(COUNT))).all()
    assert played.server.faults == [
        "client 0 forged 1 of 5 shares, first client 3's",
        "client 2 forged 1 of 5 shares, first client 4's",
    ]


def test_a_client_whose_shares_do_not_give_its_seed_is_named():
    played = Round(sending=())
    other = commit("seed", 2, 2, bytes(16))
    played.server.sharing[2] = dataclasses.replace(played.shared[2], seed=other)
    for k, client in enumerate(played.clients):
        played.server.add(client.mask(played.inboxes[k], played.deltas[k]))
    with pytest.raises(
        RoundFailed, match="client 2 handed out shares that do not give the seed it committed"
    ):
        played.server.unmask(played.answers())


def test_a_client_whose_shares_do_not_give_its_masking_key_is_named():
    terms = make_terms()
    clients = [Client(k, 10, terms) for k in range(COUNT)]
    clients[3]._masking_secret = bytes(16)  # what it shares is not what its public key follows from
    server = Server(terms)
    server.collect(client.advertise() for client in clients)
    server.route([client.share(server.directory(client.name)) for client in clients])
    for k in (0, 1, 2, 4):
        server.add(clients[k].mask(server.inbox(k), torch.zeros(LENGTH)))
    server.close()
    with pytest.raises(RoundFailed, match="client 3 handed out shares that do not give the masking key"):
        server.unmask([clients[k].reveal(server.request(k)) for k in (0, 1, 2, 4)])


def test_a_holder_refuses_shares_that_their_owner_did_not_commit_to():
    played = Round(sending=())
    inbox = played.inboxes[0]
    other = dataclasses.replace(inbox[0], commitments=bytes(64))
    with pytest.raises(Refused, match="client 1 committed to other shares than it sent"):
        played.clients[0].mask([other, *inbox[1:]], played.deltas[0])


def test_answers_from_outside_the_sum_and_repeated_ones_change_nothing():
    played = Round(sending=(0, 1, 2, 4))
    answers = played.answers()
    stranger, absent = (dataclasses.replace(answers[0], client=client) for client in (77, 3))
    again = dataclasses.replace(answers[0], seeds=dict.fromkeys(range(COUNT), bytes(16)))
    total = played.server.unmask([stranger, absent, *answers, again])
    assert (total == played.expected((0, 1, 2, 4))).all()
    assert played.server.faults == [
        "client 77 sent shares for unmasking, but is not in the sum",
        "client 3 sent shares for unmasking, but is not in the sum",
        "client 0 sent shares for unmasking twice",
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (np.ones(1, "<u4"), r"uint32 of shape (1,)"),
        (np.ones(LENGTH, "<u4"), r"uint32 of shape (12,)"),
        (np.ones(LENGTH + 1, "<u8"), r"uint64 of shape (13,)"),
        (np.ones(LENGTH + 1, "<f4"), r"float32 of shape (13,)"),
        (np.ones((1, LENGTH + 1), "<u4"), r"uint32 of shape (1, 13)"),
        (np.ones((), "<u4"), r"uint32 of shape ()"),
        ([1] * (LENGTH + 1), "no array"),
        (None, "no array"),
    ],
)
def test_a_vector_of_the_wrong_kind_is_left_out_like_a_drop_out(words, named):
    for first in (False, True):
        played = Round(sending=() if first else (0, 1, 3, 4))
        played.server.add(Masked(2, words))
        for k in (0, 1, 3, 4) if first else ():
            played.server.add(played.clients[k].mask(played.inboxes[k], played.deltas[k]))
        total = played.server.unmask(played.answers())
        assert (total == played.expected((0, 1, 3, 4))).all()
        assert played.server.faults == [f"client 2 sent a vector of {named}, uint32 of shape (13,) is needed"]


def test_too_many_vectors_of_the_wrong_kind_fail_the_round_in_one_line():
    played = Round(sending=(0, 1, 2))
    for client in (3, 4):
        played.server.add(Masked(client, np.ones(1, "<u4")))
    with pytest.raises(
        RoundFailed, match=r"3 of 5 clients sent a masked vector.*client 3 sent.*shape"
    ) as caught:
        played.server.close()
    assert "\n" not in str(caught.value)


def test_a_second_vector_and_one_of_a_stranger_do_not_reach_the_sum():
    played = Round()
    for client in (1, 77):
        played.server.add(Masked(client, np.ones(LENGTH + 1, "<u4")))
    assert (played.server.unmask(played.answers()) == played.expected(range(COUNT))).all()
    assert played.server.faults == [
        "client 1 sent a vector twice",
        "client 77 sent a vector, but shared no secrets",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"sealing": bytes(32)},
        {"masking": bytes(32)},
        {"masking": b"short"},
        {"sealing": None},
        {"masking": "0" * 32},
        {"client": 1},
    ],
    ids=["zero sealing", "zero masking", "short", "none", "text", "another's name"],
)
def test_a_client_with_unusable_keys_is_left_out_and_the_others_go_on(change):
    total, server, expected = play_without_client_2(
        keys=lambda keys: dataclasses.replace(keys, **change), shared=lambda shared: shared
    )
    assert (total == expected).all()
    assert server.faults[0].startswith(f"client {change.get('client', 2)} sent public keys")


def test_a_client_with_anothers_key_is_left_out():
    seen = {}

    def copied(keys):
        return Keys(2, seen[1].sealing, keys.masking)

    terms = make_terms()
    server = Server(terms)
    seen.update({k: Client(k, 10, terms).advertise() for k in range(COUNT)})
    seen[2] = copied(seen[2])
    server.collect(seen.values())
    assert set(server.keys) == {0, 1, 3, 4}
    assert server.faults == ["client 2 sent a public key that is in use already"]


@pytest.mark.parametrize(
    "change",
    [{"sealed": b""}, {"commitments": bytes(64)}, {"seed": b"short"}, {"client": 77}, {"client": 1}],
    ids=str,
)
def test_a_client_with_malformed_shares_is_left_out_and_the_others_go_on(change):
    total, server, expected = play_without_client_2(
        keys=lambda keys: keys, shared=lambda shared: dataclasses.replace(shared, **change)
    )
    assert (total == expected).all()
    assert server.faults[0].startswith(f"client {change.get('client', 2)} sent shares")


def play_without_client_2(keys, shared):
    """A round in which client 2's public keys and shares are changed on their way."""
    terms = make_terms()
    clients = [Client(k, 10, terms) for k in range(COUNT)]
    deltas = torch.randn(COUNT, LENGTH)
    server = Server(terms)
    advertised = [client.advertise() for client in clients]
    server.collect([*advertised[:2], keys(advertised[2]), *advertised[3:]])
    outboxes = {k: clients[k].share(server.directory(k)) for k in server.keys}
    server.route(shared(outbox) if k == 2 else outbox for k, outbox in sorted(outboxes.items()))
    assert 2 not in server.sharing
    for k in server.sharing:
        server.add(clients[k].mask(server.inbox(k), deltas[k]))
    server.close()
    total = server.unmask([clients[k].reveal(server.request(k)) for k in server.masked])
    return total, server, sum(terms.ring.quantise(deltas[k].numpy(), 1.0) for k in (0, 1, 3, 4))
