"""Active federated learning: valuations, probabilities and who is drawn."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from conftest import CLASSES, make_model, make_server, make_split

from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies.afl import AFL, probabilities
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe

SIZES = (30, 20, 10, 14, 25, 6)


def run(strategy, engine, *, rounds=4, fraction=0.5, channel=None, record=None, observe=()):
    model = make_model()
    recipe = Recipe(epochs=1, batch_size=8, lr=0.1)
    federation = Federation(
        model, make_split(SIZES), recipe, engine=engine, strategy=strategy, channel=channel
    )
    plan = Plan(rounds=rounds, fraction=fraction, observe=observe)
    return federation.run(read_vector(model), plan, record=record)


def server_with(valuations, sizes=None):
    reported = torch.tensor(valuations, dtype=torch.float64)
    return make_server(sizes=sizes or (5,) * len(reported), memory={"valuations": reported})


def rounds_of(server, count):
    """The same server in so many rounds."""
    return (dataclasses.replace(server, number=number) for number in range(count))


def summed_loss(model, images):
    """The sum of -ln p over the images, one by one, in NumPy."""
    with torch.no_grad():
        logits = model.eval()(images.x).double().numpy()
    answers = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return -sum(math.log(row[label]) for row, label in zip(answers, images.y.tolist()))


@pytest.mark.parametrize("seed", range(20))
def test_probabilities_are_those_of_the_paper(seed):
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(2, 40))
    count = int(rng.integers(1, clients + 1))
    alpha1, alpha2 = rng.uniform(0, 1), rng.uniform(0, 0.1)
    valuations = rng.uniform(0, 300, clients)
    ranked = sorted(range(clients), key=lambda client: valuations[client])
    excluded = set(ranked[: min(round(alpha1 * clients), clients - count)])
    weights = [0.0 if k in excluded else math.exp(alpha2 * valuations[k]) for k in range(clients)]
    expected = [weight / math.fsum(weights) for weight in weights]
    got = probabilities(valuations, count, alpha1=alpha1, alpha2=alpha2)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert np.count_nonzero(got) >= count


def test_probabilities_stay_numbers_however_large_the_losses():
    got = probabilities(np.array([0.0, 1e6, 2e6, 3e6]), 3, alpha1=0.25, alpha2=1.0)
    assert got[0] == 0
    assert (got[1:] > 0).all()
    assert got.sum() == pytest.approx(1)


def test_clients_are_drawn_as_likely_as_their_valuations_say():
    valuations, rounds = [100.0, 60.0, 20.0, 140.0], 3000
    drawn = np.zeros(4)
    for server in rounds_of(server_with(valuations), rounds):
        (client,) = AFL(alpha1=0.25, alpha3=0.0).choose(server, 1)
        drawn[client] += 1
    weights = np.exp(0.01 * np.array(valuations)) * np.array([1, 1, 0, 1])
    expected = weights / weights.sum()
    assert drawn[2] == 0
    np.testing.assert_allclose(drawn / rounds, expected, atol=4 * 0.5 / math.sqrt(rounds))


def test_a_share_alpha3_of_the_round_is_drawn_from_the_rest():
    valuations = [*range(30), *range(1000, 1010)]  # ten that the model is bad at among forty
    strategy, rest = AFL(alpha1=0.75), []
    for server in rounds_of(server_with(valuations), 300):
        chosen = strategy.choose(server, 10)
        assert len(set(chosen)) == 10
        assert len([client for client in chosen if client >= 30]) >= 9
        rest += [client for client in chosen if client < 30]
    assert set(rest) == set(range(30))  # the tenth is anybody of the other thirty-one
    assert len(rest) == pytest.approx(300 * 30 / 31, rel=0.05)


@pytest.mark.parametrize("alpha1", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("count", [1, 5, 7, 8])
def test_there_are_always_enough_clients_to_draw(alpha1, count):
    valuations = [3.0, 1e5, math.nan, 0.0, 7.0, math.nan, 2.0, 2.0]
    for alpha3 in (0.0, 0.5, 1.0):
        strategy = AFL(alpha1=alpha1, alpha2=1.0, alpha3=alpha3)
        chosen = strategy.choose(server_with(valuations), count)
        assert chosen == sorted(set(chosen))
        assert len(chosen) == count


def test_a_client_that_never_trained_counts_as_one_of_which_the_model_knows_nothing():
    sizes = (100, 25, 4, 100)
    ignorant = [math.sqrt(size) * math.log(CLASSES) for size in sizes]
    known = [math.nan, ignorant[1], math.nan, 0.9 * ignorant[3]]
    for server in rounds_of(server_with(known, sizes=sizes), 50):
        assert AFL(alpha1=0.75, alpha3=0.0).choose(server, 1) == [0]  # the one with the highest is left


def test_clients_that_never_trained_are_not_told_apart_by_their_number():
    valuations = [0.0, *[math.nan] * 19]
    drawn = set()
    for server in rounds_of(server_with(valuations), 100):
        drawn |= set(AFL(alpha1=0.75, alpha3=0.0).choose(server, 2))
    assert drawn == set(range(1, 20))


def test_the_first_round_is_fedavgs():
    strategy = AFL()
    for seed in range(5):
        server = make_server(sizes=(5,) * 12, seed=seed)
        server = make_server(sizes=(5,) * 12, seed=seed, memory=strategy.begin(server))
        assert strategy.choose(server, 4) == FedAvg().choose(server, 4)


def test_clients_tell_their_summed_loss_under_the_model_sent_over_the_root_of_their_samples(engine):
    record, split, model = Record(), make_split(SIZES), make_model()
    history = run(AFL(), engine, channel=Plain(dropout=0.3), record=record, observe=range(4))
    known = {}
    for number in range(4):
        seen = record.observed(number)
        write_vector(model, seen.sent)
        assert seen.delivery.reports.keys() == set(seen.delivery.clients)
        for client, report in seen.delivery.reports.items():
            known[client] = summed_loss(model, split.client(client)) / math.sqrt(SIZES[client])
            assert report["valuation"].dtype == torch.float32
            assert report["valuation"].item() == pytest.approx(known[client], rel=1e-5)
    remembered = history.memory["valuations"].numpy()
    expected = [known.get(client, math.nan) for client in range(len(SIZES))]
    np.testing.assert_allclose(remembered, expected, rtol=1e-5)  # as of the round in which each last arrived


def test_where_everybody_takes_part_it_is_fedavg(engine):
    ours, fedavg = (run(strategy, engine, fraction=1.0) for strategy in (AFL(), FedAvg()))
    assert torch.equal(ours.vector, fedavg.vector)
    assert [row.clients for row in ours.rounds] == [row.clients for row in fedavg.rounds]
