from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_model, make_plain_model, make_server, make_split

from glasshouse.defences import make_defences
from glasshouse.defences.defence import Defence, Stack
from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.channels.channel import Plain, RoundFailed
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies.fedavg import FedAvg, FedSGD
from glasshouse.federation.updates import Update, blocks
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import accuracy, hits
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive

RECIPE = Recipe(epochs=1, batch_size=8, lr=0.1)


def test_fedavg_weights_each_client_by_its_share_of_the_samples(engine):
    split, model = make_split((30, 20, 10)), make_model()
    start = read_vector(model)
    federation = Federation(model, split, RECIPE, engine=engine, seed=4)
    history = federation.run(start, Plan(rounds=1))
    expected = torch.zeros_like(start)
    for client, size in enumerate((30, 20, 10)):
        seed = derive(derive(4, "round", 0), "client", client)
        expected += size / 60 * fit(laid_out(make_model()), start, split.client(client), RECIPE, seed)
    torch.testing.assert_close(history.vector, expected, rtol=1e-5, atol=1e-6)


def test_fedsgd_on_whole_clients_is_one_gradient_step_on_the_union(engine):
    split, model = make_split((30, 20, 10)), make_plain_model()
    recipe = Recipe(epochs=5, batch_size=0, lr=0.3, momentum=0.9)
    history = Federation(model, split, recipe, engine=engine, strategy=FedSGD()).run(
        read_vector(model), Plan(rounds=1)
    )
    everyone = split.images("members")
    F.cross_entropy(model(everyone.x), everyone.y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.3 * p.grad
    torch.testing.assert_close(history.vector, read_vector(model), rtol=1e-5, atol=1e-6)


def test_a_federation_learns(engine):
    split, model = make_split((40, 40, 40)), make_model()
    history = Federation(
        model, split, Recipe(epochs=3, batch_size=8, lr=0.1), engine=engine, local_test=40
    ).run(read_vector(model), Plan(rounds=5))
    assert history.rounds[-1].acc_global > 0.9
    assert history.rounds[-1].acc_local > 0.5


LIVELY = Recipe(
    epochs=2, batch_size=4, optimiser="adamw", lr=0.01, schedule="cosine", warmup=1, rounds=4,
    clip_grad_norm=0.5, augment="crop(pad=1)+flip", label_smoothing=0.1, mix_up=0.2,
)  # fmt: skip


@pytest.mark.parametrize(("defence", "recipe"), [
    ("none", RECIPE), ("clipping(norm=0.5)+gaussian-noise(std=0.01)", LIVELY),
])  # fmt: skip
def test_the_numbers_do_not_depend_on_workers_or_on_being_watched(defence, recipe):
    split = make_split((30, 20, 10, 7, 5, 4, 3, 9, 8, 6))
    runs = []
    for workers, observe in ((1, ()), (2, ()), (1, (0, 1)), (4, (0, 1))):
        with Engine(workers) as running:
            federation = Federation(
                make_model(), split, recipe, engine=running, defences=make_defences(defence), local_test=10
            )
            runs.append(
                federation.run(read_vector(make_model()), Plan(rounds=2, fraction=0.7, observe=observe))
            )
    for run in runs[1:]:
        assert torch.equal(run.vector, runs[0].vector)
        assert run.rounds == runs[0].rounds


def test_an_interrupted_federation_ends_with_the_same_numbers(engine, tmp_path):
    split, start = make_split(), read_vector(make_model())

    def federation():
        return Federation(make_model(), split, RECIPE, engine=engine, seed=1)

    whole = federation().run(start, Plan(rounds=4, fraction=0.6))
    federation().run(start, Plan(rounds=2, fraction=0.6), record=Record(tmp_path))
    resumed = federation().run(start, Plan(rounds=4, fraction=0.6), record=Record(tmp_path))
    assert torch.equal(resumed.vector, whole.vector)
    assert resumed.rounds == whole.rounds


def test_what_the_server_saw_survives_on_disk(engine, tmp_path):
    split, start = make_split(), read_vector(make_model())
    seen = []
    for record in (Record(), Record(tmp_path)):
        Federation(make_model(), split, RECIPE, engine=engine).run(
            start, Plan(rounds=1, observe=(0,)), record=record
        )
        seen.append(record.observed(0))
    kept, read = seen
    assert torch.equal(kept.sent, read.sent)
    assert torch.equal(kept.delivery.mean, read.delivery.mean)
    assert kept.delivery.clients == read.delivery.clients == (0, 1, 2)
    for one, other in zip(kept.delivery.updates, read.delivery.updates, strict=True):
        assert (one.client, one.samples) == (other.client, other.samples)
        assert torch.equal(one.delta, other.delta)


def test_the_global_model_moves_by_the_weighted_mean_of_what_the_server_saw(engine):
    split, start, record = make_split(), read_vector(make_model()), Record()
    history = Federation(make_model(), split, RECIPE, engine=engine).run(
        start, Plan(rounds=1, observe=(0,)), record=record
    )
    updates = record.observed(0).delivery.updates
    moved = sum(update.samples / 60 * update.delta.double() for update in updates)
    torch.testing.assert_close((history.vector - start).double(), moved, rtol=1e-4, atol=1e-6)


def test_training_stops_at_the_target_accuracy(engine):
    split, model = make_split((40, 40, 40)), make_model()
    federation = Federation(model, split, Recipe(epochs=3, batch_size=8, lr=0.1), engine=engine)
    history = federation.run(read_vector(model), Plan(rounds=30, target_accuracy=0.8))
    assert history.rounds[-1].acc_global >= 0.8
    assert all(row.acc_global < 0.8 for row in history.rounds[:-1])


def test_accuracies_are_those_of_the_global_and_the_local_models(engine):
    split, start = make_split(), read_vector(make_model())
    federation = Federation(make_model(), split, RECIPE, engine=engine, local_test=40)
    row = federation.run(start, Plan(rounds=1)).rounds[0]
    model = laid_out(make_model())
    local = []
    for client in range(3):
        write_vector(
            model,
            fit(model, start, split.client(client), RECIPE, derive(derive(0, "round", 0), "client", client)),
        )
        local.append(accuracy(model, split.images("test")))
    assert row.acc_local == pytest.approx(np.mean(local))


def test_own_accuracies_weigh_the_classes_as_each_participant_holds_them(engine):
    mixed = make_split((40, 40, 40))
    by_class = mixed.members[np.argsort(mixed.pool.y.numpy()[mixed.members], stable=True)]
    split = replace(mixed, clients=tuple(np.array_split(by_class, 3)))
    federation = Federation(make_model(), split, RECIPE, engine=engine, local_test=40)
    history = federation.run(read_vector(make_model()), Plan(rounds=1))
    row, test, model = history.rounds[0], split.images("test"), laid_out(make_model())
    write_vector(model, history.vector)
    right, expected = hits(model, test), []
    for client in row.clients:
        y = split.client(client).y
        expected.append(np.mean([right[test.y == label].double().mean().item() for label in y.tolist()]))
    assert row.acc_global_own == pytest.approx(np.mean(expected))
    assert row.acc_local_own > row.acc_local


@pytest.mark.parametrize(
    ("fraction", "clients", "count"), [(0.1, 100, 10), (1.0, 7, 7), (0.01, 10, 1), (0.25, 10, 3)]
)
def test_a_fraction_of_the_clients_takes_part(fraction, clients, count):
    assert Plan(fraction=fraction).participants(clients) == count


def test_fedavg_chooses_without_repetition_and_reaches_everyone():
    chosen = [FedAvg().choose(make_server(number=number, sizes=(5,) * 10), 3) for number in range(40)]
    assert all(len(set(row)) == 3 for row in chosen)
    assert set().union(*chosen) == set(range(10))


def test_blocks_cover_the_clients_in_order_in_nearly_equal_parts():
    for count in (1, 2, 7, 8, 9, 50):
        parts = blocks(range(count))
        assert [client for part in parts for client in part] == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_plain_channel_shows_every_update_and_their_mean():
    updates = [
        Update(client, size, torch.full((3,), float(client))) for client, size in ((0, 1), (1, 2), (2, 1))
    ]
    delivery = Plain().deliver(updates, seed=0)
    assert delivery.samples == 4
    assert delivery.clients == (0, 1, 2)
    torch.testing.assert_close(delivery.mean, torch.ones(3))


@pytest.mark.parametrize("channel", ["plain", "plain(dropout=0.3)", "ideal", "secure"])
@pytest.mark.parametrize("keep_updates", [True, False])
@pytest.mark.parametrize(
    ("clients", "apart", "message"),
    [
        ([], [], "clients is empty; an exchange needs at least one"),
        ([0, 3], [], "client 3 does not exist; the federation's clients are 0 to 2"),
        ([-1, 0], [], "client -1 does not exist; the federation's clients are 0 to 2"),
        ([2, 1, 2], [], "client 2 is named more than once; name every client of an exchange once"),
        ([0, 1], [2], "client 2 gets a model of its own .* takes no part .* add it to clients"),
    ],
)
def test_an_exchange_with_clients_that_cannot_be_is_refused(
    engine, channel, keep_updates, clients, apart, message
):
    model = make_plain_model()
    federation = Federation(model, make_split(), RECIPE, engine=engine, channel=CHANNELS.make(channel))
    sent = read_vector(model)
    with pytest.raises(BadInput, match=message):
        federation.exchange(sent, clients, 0, apart=dict.fromkeys(apart, sent), keep_updates=keep_updates)


@pytest.mark.parametrize("channel", ["plain", "ideal", "secure"])
@pytest.mark.parametrize("keep_updates", [True, False])
def test_a_round_that_every_client_refuses_fails_with_their_reason(engine, channel, keep_updates):
    class Refusing(Defence):
        def on_receive(self, model, shape):
            return "it looks odd"

    model = make_plain_model()
    federation = Federation(
        model,
        make_split(),
        RECIPE,
        engine=engine,
        defences=Stack([Refusing()]),
        channel=CHANNELS.make(channel),
    )
    with pytest.raises(RoundFailed, match="every client refused the model: it looks odd"):
        federation.exchange(read_vector(model), [0, 1, 2], 0, keep_updates=keep_updates)
    with pytest.raises(BadInput, match="round 1 failed: every client refused the model"):
        federation.run(read_vector(model), Plan(rounds=1))


def test_clients_of_an_exchange_may_be_any_sequence_of_whole_numbers(engine):
    model = make_plain_model()
    federation = Federation(model, make_split(), RECIPE, engine=engine)
    means = [
        federation.exchange(read_vector(model), clients, 0).delivery.mean
        for clients in (range(3), [0, 1, 2], np.arange(3))
    ]
    assert torch.equal(means[0], means[1])
    assert torch.equal(means[0], means[2])


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"fraction": 0.0}, {"fraction": 1.5}])
def test_impossible_plans_are_refused(wrong):
    with pytest.raises(BadInput, match="out of range"):
        Plan(**wrong)


def test_one_client_with_everything_is_central_training(engine):
    split, start = make_split((60,)), read_vector(make_model())
    history = Federation(make_model(), split, RECIPE, engine=engine).run(start, Plan(rounds=1))
    seed = derive(derive(0, "round", 0), "client", 0)
    central = fit(laid_out(make_model()), start, split.client(0), RECIPE, seed)
    torch.testing.assert_close(history.vector, central, rtol=1e-5, atol=1e-6)


def test_a_model_that_explodes_is_reported_with_a_remedy(engine):
    split, model = make_split(), make_plain_model()
    federation = Federation(model, split, Recipe(epochs=5, batch_size=8, lr=1e30), engine=engine)
    with pytest.raises(BadInput, match="NaN or infinite; lower lr"):
        federation.run(read_vector(model), Plan(rounds=3))


@pytest.mark.slow
@pytest.mark.extras
@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_cluster_gives_the_same_numbers(backend):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[backend])
    runs = []
    for workers, name in ((1, "processes"), (2, backend)):
        with Engine(workers, name) as running:
            federation = Federation(make_model(), make_split(), RECIPE, engine=running, local_test=10)
            runs.append(federation.run(read_vector(make_model()), Plan(rounds=2)))
    assert torch.equal(runs[0].vector, runs[1].vector)
    assert runs[0].rounds == runs[1].rounds
