"""The rounds between clients and server: what goes wrong must be refused, and masks must hide."""

import dataclasses

import numpy as np
import pytest
import torch
from secagg_rounds import COUNT, LENGTH, Round, looks_uniform, make_terms

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.secagg.client import Client
from glasshouse.federation.secagg.keys import mask_purpose
from glasshouse.federation.secagg.masks import add_mask
from glasshouse.federation.secagg.messages import Refused, Request, needed
from glasshouse.federation.secagg.ring import CHUNK, Ring, narrow_clients
from glasshouse.federation.secagg.server import Server
from glasshouse.federation.updates import Update


def test_the_server_opens_the_sum_of_the_quantised_updates_exactly():
    played = Round(sending=(0, 1, 2, 4))
    assert played.server.request(0) == Request((0, 1, 2, 4), (3,))
    total = played.server.unmask(played.answers())
    assert (total == played.expected((0, 1, 2, 4))).all()
    assert not played.server.faults


def test_a_client_never_reveals_both_kinds_of_share_of_one_peer():
    played = Round()
    with pytest.raises(Refused, match="both kinds of share are asked for of client 3"):
        played.clients[0].reveal(Request((0, 1, 2, 3, 4), (3,)))
    played.clients[0].reveal(Request((0, 1, 2, 3, 4), ()))
    with pytest.raises(Refused, match="another request was answered"):
        played.clients[0].reveal(Request((0, 1, 2, 4), (3,)))


def test_a_repeated_request_gets_the_same_answer():
    played = Round()
    request = played.server.request(0)
    assert played.clients[0].reveal(request) == played.clients[0].reveal(request)


def test_no_answer_holds_both_kinds_of_share_of_one_client():
    played = Round(sending=(0, 1, 2, 4))
    revealed = played.clients[0].reveal(played.server.request(0))
    assert set(revealed.seeds) == {0, 1, 2, 4}
    assert set(revealed.keys) == {3}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request((0, 1, 2), (3, 4)), "3 clients are in the sum, 4 are needed"),
        (Request((1, 2, 3, 4), (0,)), "not part of"),
        (Request((0, 1, 2, 3), ()), "does not name the clients"),
        (Request((0, 1, 2, 3, 4, 7), ()), "does not name the clients"),
    ],
)
def test_a_client_refuses_requests_that_an_honest_server_does_not_make(request_, reason):
    with pytest.raises(Refused, match=reason):
        Round().clients[0].reveal(request_)


def test_a_client_answers_in_turn_and_once():
    played = Round()
    with pytest.raises(Refused, match="shared already"):
        played.clients[0].share(played.keys)
    with pytest.raises(Refused, match="out of turn"):
        played.clients[0].mask(played.inboxes[0], played.deltas[0])
    fresh = Client(0, 10, played.terms)
    with pytest.raises(Refused, match="before it has sent"):
        fresh.reveal(played.server.request(0))


def _flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize(
    "tamper",
    [
        lambda message, inbox: dataclasses.replace(message, text=_flipped(message.text)),
        lambda message, inbox: dataclasses.replace(message, text=message.text[:-1]),
        lambda message, inbox: dataclasses.replace(inbox[1], sender=message.sender),
    ],
    ids=["text", "cut", "swapped"],
)
def test_tampered_shares_are_refused_before_anything_is_sent(tamper):
    played = Round(sending=())
    inbox = played.inboxes[0]
    with pytest.raises(Refused, match="were changed on the way"):
        played.clients[0].mask([tamper(inbox[0], inbox), *inbox[1:]], played.deltas[0])


def test_shares_sent_back_to_their_sender_are_refused():
    played = Round(sending=())
    sealed = next(message for message in played.inboxes[1] if message.sender == 0)
    reflected = dataclasses.replace(sealed, sender=1, recipient=0)
    with pytest.raises(Refused, match="were changed on the way"):
        played.clients[0].mask([reflected, *played.inboxes[0][1:]], played.deltas[0])


def test_a_client_refuses_exchanged_repeated_and_unusable_keys():
    def fresh():
        played = Round(sending=())
        client = Client(0, 10, played.terms)
        return client, [client.advertise(), *played.keys[1:]]

    client, keys = fresh()
    with pytest.raises(Refused, match="its own public keys were exchanged"):
        client.share([dataclasses.replace(keys[0], masking=bytes(32)), *keys[1:]])
    client, keys = fresh()
    with pytest.raises(Refused, match="listed twice"):
        client.share([*keys[:4], dataclasses.replace(keys[3], client=4)])
    client, keys = fresh()
    with pytest.raises(Refused, match="no usable public key"):
        client.share([*keys[:4], dataclasses.replace(keys[4], sealing=bytes(32))])
    client, keys = fresh()
    with pytest.raises(Refused, match="do not fit"):
        client.share(keys[:3])


def test_a_client_refuses_terms_that_would_expose_it():
    with pytest.raises(Refused, match="two halves"):
        Client(0, 10, make_terms(threshold=2))
    with pytest.raises(Refused, match="two halves"):
        Client(0, 10, make_terms(count=30, neighbours=9, threshold=5))
    with pytest.raises(Refused, match="most samples"):
        Client(0, 10, make_terms(largest=9))


@pytest.mark.parametrize("neighbours", [None, 4])
def test_masks_do_not_cancel_among_clients_that_were_told_different_terms(neighbours):
    count, length = 7, 50_000
    victims = make_terms(count, length, neighbours)
    others = dataclasses.replace(victims, largest=2**60)  # so that their updates round to zero
    clients = [Client(k, 10, others if k else victims) for k in range(count)]
    server = Server(victims, neighbours)
    server.collect(client.advertise() for client in clients)
    server.route([client.share(server.directory(client.name)) for client in clients])
    deltas = torch.ones(count, length)
    for client in clients:
        server.add(client.mask(server.inbox(client.name), deltas[client.name]))
    server.close()
    total = server.unmask([client.reveal(server.request(client.name)) for client in clients])
    assert looks_uniform(total)  # and is not the victim's update, the one that is not zero


CHANGES = [
    {"ring": Ring(clip=4.0, bits=22, clients=COUNT)},
    {"ring": Ring(clip=8.0, bits=21, clients=COUNT)},
    {"ring": Ring(clip=8.0, bits=22, clients=COUNT + 1), "holders": COUNT + 1},
    *({name: 1} for name in ("length", "holders", "threshold", "fewest", "largest")),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(change))
def test_a_mask_is_agreed_on_for_all_of_the_terms(change):
    keys = Round().keys
    assert mask_purpose(make_terms(**change), keys) != mask_purpose(make_terms(), keys)
    whole = make_terms(ring=Ring(clip=8, bits=22, clients=COUNT))
    assert mask_purpose(whole, keys) == mask_purpose(make_terms(), keys)


def test_a_mask_is_agreed_on_for_the_clients_where_each_knows_all():
    keys = Round().keys
    assert mask_purpose(make_terms(), keys) == mask_purpose(make_terms(), keys[::-1])
    assert mask_purpose(make_terms(), keys) != mask_purpose(make_terms(), keys[:4])
    sparse = make_terms(neighbours=2)
    assert mask_purpose(sparse, keys[:3]) == mask_purpose(sparse, keys[2:])


@pytest.mark.parametrize("value", [float("nan"), 2.0, -1, "2", None, True])
def test_terms_are_whole_numbers(value):
    with pytest.raises(BadInput, match=r"threshold = .* is out of range; give a whole number"):
        make_terms(threshold=value)


def test_below_the_threshold_the_round_fails_before_any_client_is_asked_for_shares():
    played = Round(sending=(0, 1, 2))
    with pytest.raises(RoundFailed, match="3 of 5 clients sent a masked vector, 4 are needed; nothing"):
        played.server.close()


def test_too_few_answers_open_nothing():
    played = Round(sending=(0, 1, 2, 4), deltas=torch.zeros(COUNT, 50_000))
    with pytest.raises(RoundFailed, match="3 of 5 clients sent shares for unmasking, 4 are needed"):
        played.server.unmask(played.answers(staying=(0, 1, 2)))
    assert looks_uniform(played.server.total)


@pytest.mark.parametrize("bits", [22, 31])
def test_every_masked_vectorlooks_uniform(bits):
    played = Round(deltas=torch.zeros(COUNT, 50_000), bits=bits)
    assert {words.dtype.itemsize for words in played.vectors} == {4 if bits == 22 else 8}
    assert all(looks_uniform(words) for words in played.vectors)
    assert all(looks_uniform(words - played.vectors[0]) for words in played.vectors[1:])


def test_the_server_holds_no_update_and_no_secret():
    deltas = torch.arange(COUNT * LENGTH).reshape(COUNT, LENGTH) / 7
    played = Round(deltas=deltas)
    reached = list(_reachable(played.server))
    assert not any(isinstance(item, (torch.Tensor, Update, Client)) for item in reached)
    arrays = [item for item in reached if isinstance(item, np.ndarray)]
    assert len(arrays) == 1
    assert arrays[0] is played.server.total
    held = {item for item in reached if isinstance(item, bytes)}
    public = {key for keys in played.keys for key in (keys.sealing, keys.masking)}
    sent = {part for shared in played.shared for part in (shared.sealed, shared.commitments, shared.seed)}
    assert held == public | sent


def _reachable(root):
    """Every object that attributes and containers of `root` lead to."""
    waiting, seen = [root], set()
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, (list, tuple, set)):
            waiting += item
        elif hasattr(item, "__dict__") and type(item).__module__.startswith("glasshouse"):
            waiting += vars(item).values()


def test_masks_of_one_key_cancel_over_chunks_and_repeat():
    words = np.arange(400_000, dtype="<u4")
    add_mask(words, bytes(32))
    assert looks_uniform(words)
    add_mask(words, bytes(32), subtract=True)
    assert (words == np.arange(400_000)).all()


def test_quantising_rounds_to_the_nearest_level_and_keeps_zero():
    ring = Ring(clip=1.0, bits=4, clients=3)
    values = np.array([0.0, 0.06, 0.07, -0.06, -0.07, 1.0, -1.0])  # the step is 0.125
    words = ring.quantise(values, 1.0)
    assert ring.read(words, 1.0, np.dtype(float)).tolist() == [0, 0, 0.125, 0, -0.125, 1, -1]
    assert words[-1] == 0


def test_entries_beyond_the_clip_are_cut_and_counted():
    ring = Ring(clip=1.0, bits=8, clients=3)
    values = np.zeros(CHUNK + 2)
    values[[0, -1]] = 3.0, -40.0
    words = ring.quantise(values, 0.5)
    assert ring.read(words, 1.0, np.dtype(float))[[0, 1, -1]].tolist() == [1, 0, -1]
    assert words[-1] == 2


@pytest.mark.parametrize("bits", [2, 8, 22, 31, 32])
def test_the_ring_is_chosen_so_that_no_sum_overflows(bits):
    most = narrow_clients(bits)
    for clients in {max(2, most), most + 2}:
        ring = Ring(clip=1.0, bits=bits, clients=clients)
        assert ring.width == (32 if clients <= most else 64)
        largest = ring.quantise(np.array([1.0]), 1.0).astype(object)[0] * clients
        assert largest < 2 ** (ring.width - 1)


def test_the_count_of_clipped_entries_cannot_overflow():
    ring = Ring(clip=1.0, bits=2, clients=2**29)
    assert int(ring.quantise(np.full(10, 9.0), 1.0)[-1]) * ring.clients < 2**31


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_a_line_for_the_user(bad):
    delta = torch.zeros(LENGTH)
    delta[3] = bad
    deltas = torch.zeros(COUNT, LENGTH)
    deltas[2] = delta
    with pytest.raises(BadInput, match="client 2: the update holds NaN or infinite entries; lower"):
        Round(deltas=deltas)


@pytest.mark.parametrize(
    ("clients", "share", "count"),
    [(2, 2 / 3, 2), (3, 2 / 3, 2), (9, 2 / 3, 6), (10, 0.7, 7), (10, 0.51, 6), (4, 1, 4)],
)
def test_more_than_half_are_needed_in_any_case(clients, share, count):
    assert needed(clients, share) == count
