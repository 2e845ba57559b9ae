"""Masks and shares among neighbours alone: the graph, what it guarantees, and rounds over it."""

import contextlib
import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from secagg_rounds import Round

from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.secagg.graph import (
    EXPOSED,
    FAILED,
    enough_neighbours,
    guarantee,
    neighbourhoods,
)
from glasshouse.federation.secagg.messages import Masked, Refused, Request, needed

CLIENTS, NEIGHBOURS = 30, 6


@pytest.mark.parametrize(("count", "neighbours"), [(4, 2), (9, 4), (30, 6), (31, 28), (100, 2)])
def test_neighbours_are_mutual_and_all_have_as_many(count, neighbours):
    clients = [3 * k + 1 for k in range(count)]
    around = neighbourhoods(clients, neighbours, seed=1)
    assert set(around) == set(clients)
    for client, holders in around.items():
        assert len(set(holders)) == neighbours + 1
        assert client in holders
        assert list(holders) == sorted(holders)
        assert all(client in around[holder] for holder in holders)
    assert around == neighbourhoods(clients, neighbours, seed=1)


@pytest.mark.parametrize("neighbours", [None, 8, 10])
def test_without_neighbours_or_with_too_many_all_clients_hold_shares(neighbours):
    around = neighbourhoods(range(9), neighbours, seed=1)
    assert set(around.values()) == {tuple(range(9))}


def test_every_pair_of_clients_is_as_likely_to_be_neighbours():
    met = np.zeros((10, 10))
    for seed in range(2000):
        for client, holders in neighbourhoods(range(10), 4, seed).items():
            met[client, list(holders)] += 1
    others = met[~np.eye(10, dtype=bool)] / 2000
    assert abs(others - 4 / 9).max() < 5 * math.sqrt(4 / 9 * 5 / 9 / 2000)


def simulate(colluding, dropping, share, rounds=400):
    """How often each of the three faults of a guarantee happens, by drawing graphs."""
    corrupt, gone = int(colluding * CLIENTS), int(dropping * CLIENTS)
    threshold = needed(NEIGHBOURS + 1, share)
    happened = np.zeros(3)
    for seed in range(rounds):
        around = neighbourhoods(range(CLIENTS), NEIGHBOURS, seed)
        dropped = set(range(corrupt, corrupt + gone))
        honest = range(corrupt, CLIENTS)
        exposed = any(sum(h < corrupt for h in around[client]) >= threshold for client in honest)
        failed = any(len(set(holders) - dropped) < threshold for holders in around.values())
        happened += exposed, pieces(around, set(range(corrupt + gone, CLIENTS))) > 1, failed
    return happened / rounds


def pieces(around, kept):
    """How many parts the graph has that is left of those in `kept`."""
    order = sorted(kept)
    edges = np.array([[other in around[client] for other in order] for client in order], dtype=int)
    return connected_components(csr_array(edges), directed=False, return_labels=False)


@pytest.mark.parametrize(("colluding", "dropping"), [(0.4, 0.2), (0.5, 0.3), (0.2, 0.2), (0.6, 0.1)])
def test_what_happens_in_drawn_graphs_stays_below_the_bounds(colluding, dropping):
    exposed, parted, failed = simulate(colluding, dropping, 2 / 3)
    chances = guarantee(CLIENTS, NEIGHBOURS, 2 / 3, colluding=colluding, dropping=dropping)
    room = 4 * math.sqrt(0.25 / 400)
    assert exposed <= chances.exposed + room
    assert parted <= chances.parted + room
    assert failed <= chances.failed + room
    assert exposed > chances.exposed / 4 - room  # and the bounds are not empty words
    assert failed > chances.failed / 4 - room


@pytest.mark.parametrize("seed", range(60))
def test_the_graph_falls_apart_only_where_half_the_neighbours_in_a_row_are_missing_twice(seed):
    rng = np.random.default_rng(seed)
    count, half = int(rng.integers(8, 40)), int(rng.integers(1, 4))
    kept = rng.random(count) < rng.uniform(0.2, 0.9)
    if not kept.any() or 2 * half >= count - 1:
        return
    around = {
        at: {(at + step) % count for step in range(-half, half + 1)} for at in range(count)
    }  # the circle, before clients are put into it at random
    places = np.flatnonzero(kept)
    gaps = np.diff(np.append(places, places[0] + count)) - 1
    assert (pieces(around, set(places)) > 1) == ((gaps >= half).sum() >= 2)


def test_the_tails_are_the_hypergeometric_ones():
    chances = guarantee(100, 10, 2 / 3, colluding=0.35, dropping=0.05)
    assert chances.threshold == 8

    def tail(marked, least):
        return sum(
            math.comb(marked, hits) * math.comb(99 - marked, 10 - hits) for hits in range(least, 11)
        ) / math.comb(99, 10)

    assert chances.exposed == pytest.approx(65 * tail(35, 8))
    assert chances.failed == pytest.approx(95 * tail(5, 4) + 5 * tail(4, 3))
    pairs = 100 * 91 / 2
    assert chances.parted == pytest.approx(pairs * math.comb(90, 30) / math.comb(100, 40))


def test_a_complete_graph_never_parts_and_fails_only_beyond_the_threshold():
    safe = guarantee(30, 29, 2 / 3, colluding=0.3, dropping=0.3)
    assert (safe.exposed, safe.parted, safe.failed) == (0, 0, 0)
    assert guarantee(30, 29, 2 / 3, colluding=0.7).exposed == 1
    assert guarantee(30, 29, 2 / 3, dropping=0.4).failed == 1


@pytest.mark.parametrize("dropping", [0.0, 0.05, 0.1])
def test_automatic_neighbours_are_the_fewest_that_keep_the_chances(dropping):
    fewest = [enough_neighbours(count, 2 / 3, dropping) for count in (100, 1000, 10_000)]
    assert fewest == sorted(fewest)
    for count, neighbours in zip((100, 1000, 10_000), fewest):
        kept = guarantee(count, neighbours, 2 / 3, dropping=dropping)
        missed = guarantee(count, neighbours - 2, 2 / 3, dropping=dropping)
        assert kept.exposed + kept.parted <= EXPOSED
        assert kept.failed <= FAILED
        assert missed.exposed + missed.parted > EXPOSED or missed.failed > FAILED
    assert enough_neighbours(5, 2 / 3, 0.4) is None


def test_the_table_in_the_docs_is_what_the_function_gives():
    page = (Path(__file__).parent.parent / "docs" / "secure-aggregation.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \| (\d+)% \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 9
    for clients, colluding, *counts in rows:
        share = 1 / 3 if colluding == "33" else int(colluding) / 100
        computed = [
            enough_neighbours(int(clients.replace(",", "")), 2 / 3, dropping, share)
            for dropping in (0.0, 0.05, 0.1, 0.2)
        ]
        assert computed == [int(count) for count in counts]
    assert str(guarantee(1000, 74, 2 / 3, dropping=0.1)) in page.replace("\n> ", " ")


def test_a_client_is_asked_for_shares_of_its_neighbours_alone():
    played = Round(count=20, neighbours=4)
    played.server.close()
    request = played.server.request(7)
    assert len(request.survivors) == 5
    stranger = next(k for k in range(20) if k not in request.survivors)
    with pytest.raises(Refused, match="does not name the clients that share secrets with it"):
        played.clients[7].reveal(Request((*request.survivors, stranger), ()))
    neighbour = next(k for k in request.survivors if k != 7)
    with pytest.raises(Refused, match=f"both kinds of share are asked for of client {neighbour}"):
        played.clients[7].reveal(Request(request.survivors, (neighbour,)))
    with pytest.raises(Refused, match="3 clients are in the sum, 4 are needed"):
        played.clients[7].reveal(Request((7, *(k for k in request.survivors if k != 7))[:3], ()))


@pytest.mark.parametrize("case", range(60))
def test_whoever_drops_out_the_sum_is_right_or_the_round_fails(case):
    rng = np.random.default_rng(case)
    count, neighbours = int(rng.integers(6, 24)), int(2 * rng.integers(1, 6))
    leaving = float(rng.choice([0.05, 0.15, 0.35]))
    sending = [k for k in range(count) if rng.random() > leaving]
    staying = [k for k in sending if rng.random() > leaving]
    sparse = neighbours if neighbours < count - 1 else None
    played = Round(
        sending, deltas=torch.from_numpy(rng.normal(size=(count, 5))), count=count, neighbours=sparse
    )
    around = neighbourhoods(tuple(range(count)), sparse, seed=0)
    threshold = played.terms.threshold
    enough = len(staying) >= played.terms.fewest and all(
        len(set(holders) & set(staying)) >= threshold for holders in around.values()
    )
    if enough:
        assert (played.server.unmask(played.answers(staying)) == played.expected(sending)).all()
    else:
        with pytest.raises(RoundFailed, match="nothing of their updates was revealed"):
            played.server.unmask(played.answers(staying))


@pytest.mark.parametrize("case", range(40))
def test_whatever_is_forged_the_sum_is_right_or_the_round_fails(case):
    rng = np.random.default_rng(case)
    count, neighbours = int(rng.integers(8, 20)), int(2 * rng.integers(2, 4))
    sending = [k for k in range(count) if rng.random() > 0.1]
    played = Round(
        sending, deltas=torch.from_numpy(rng.normal(size=(count, 5))), count=count, neighbours=neighbours
    )
    for k in set(range(count)) - set(sending):
        played.server.add(Masked(k, rng.integers(2**32, size=int(rng.integers(1, 6)), dtype="<u4")))

    def tampered(shares):
        forged = {k: rng.bytes(int(rng.integers(14, 18))) for k in shares if rng.random() < 0.1}
        return {k: share for k, share in {**shares, **forged}.items() if rng.random() > 0.02}

    with contextlib.suppress(RoundFailed):
        answers = [
            dataclasses.replace(answer, seeds=tampered(answer.seeds), keys=tampered(answer.keys))
            for answer in played.answers()
        ]
        assert (played.server.unmask(answers) == played.expected(sending)).all()
