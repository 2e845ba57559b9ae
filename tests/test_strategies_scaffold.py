"""SCAFFOLD against a plain loop written from the paper, and what its control variates must be."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_model, make_plain_model, make_split
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from glasshouse.defences import make_defences
from glasshouse.errors import BadInput
from glasshouse.federation import history
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.scaffold import SCAFFOLD
from glasshouse.learning.fit import batches
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.store import write_tensors

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1)
SIZES = (30, 20, 10, 14, 25, 6)
SHARES = np.array(SIZES) / sum(SIZES)


def federate(engine, *, recipe=RECIPE, strategy=None, model=None, channel=None, defence="none"):
    return Federation(
        make_plain_model() if model is None else model,
        make_split(SIZES),
        recipe,
        engine=engine,
        strategy=SCAFFOLD() if strategy is None else strategy,
        channel=channel,
        defences=make_defences(defence),
        seed=3,
    )


def run(engine, *, rounds=4, fraction=0.5, record=None, model=None, **entries):
    start = read_vector(make_plain_model() if model is None else model)
    plan = Plan(rounds=rounds, fraction=fraction, observe=tuple(range(rounds)))
    return federate(engine, model=model, **entries).run(start, plan, record=record)


def gradient(model, images, batch=slice(None)):
    loss = F.cross_entropy(model(images.x[batch]), images.y[batch])
    return parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


def task(sent, images, recipe, correction, seed):
    """A client's steps, and the mean of its gradients weighted by the rate of the step they were used in."""
    model = make_plain_model()
    position = sent.clone()
    steps = list(batches(len(images), recipe, numpy_rng(seed, "batches")))
    gradients, rates = [], []
    for number, batch in enumerate(steps):
        vector_to_parameters(position, model.parameters())
        gradients.append(gradient(model, images, batch) + recipe.weight_decay * position)
        rates.append(recipe.lr_at(number, len(steps)))
        position = position - rates[-1] * (gradients[-1] + correction)
    return position, sum(rate * slope for rate, slope in zip(rates, gradients)) / sum(rates)


@pytest.mark.parametrize(
    ("recipe", "server_lr", "dropout"),
    [
        (RECIPE, 1.0, 0.0),
        (RECIPE, 0.7, 0.3),
        (Recipe(epochs=3, batch_size=7, lr=0.1, schedule="cosine", weight_decay=0.01), 1.0, 0.3),
    ],
)
def test_rounds_are_those_of_the_paper(recipe, server_lr, dropout, engine):
    record, split = Record(), make_split(SIZES)
    strategy = SCAFFOLD(server_lr=server_lr)
    history = run(engine, recipe=recipe, strategy=strategy, channel=Plain(dropout=dropout), record=record)

    vector = read_vector(make_plain_model())
    variates = [torch.zeros_like(vector) for _ in SIZES]
    common = torch.zeros_like(vector)
    for number in range(4):
        clients = record.observed(number).delivery.clients
        samples = sum(SIZES[client] for client in clients)
        moved, changes = torch.zeros_like(vector), torch.zeros_like(vector)
        for client in clients:
            seed = derive(derive(3, "round", number), "client", client)
            correction = common - variates[client]
            reached, mean_gradient = task(vector, split.client(client), recipe, correction, seed)
            moved += SIZES[client] / samples * (reached - vector)
            changes += SIZES[client] / sum(SIZES) * (mean_gradient - variates[client])
            variates[client] = mean_gradient
        vector, common = vector + server_lr * moved, common + changes

    torch.testing.assert_close(history.vector, vector, rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(history.memory["variate"], common, rtol=1e-3, atol=2e-5)
    for client, kept in history.kept.items():
        torch.testing.assert_close(kept["variate"], variates[client], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("channel", "off"),
    [(Plain(), 1e-6), (Plain(dropout=0.3), 1e-6), (Secure(dropout_before=0.2, dropout_after=0.1), 1e-4)],
)
def test_the_servers_variate_is_the_weighted_mean_of_the_clients(channel, off, engine):
    history = run(engine, rounds=6, fraction=0.6, channel=channel, model=make_model())
    assert len({row.clients for row in history.rounds}) > 1
    expected = sum(SHARES[client] * kept["variate"] for client, kept in history.kept.items())
    torch.testing.assert_close(history.memory["variate"], expected.float(), rtol=0, atol=off)


def test_after_a_step_on_all_data_the_variates_are_gradients(engine):
    recipe = Recipe(epochs=1, batch_size=0, lr=0.2)
    history = run(engine, rounds=1, fraction=1.0, recipe=recipe)
    split, model = make_split(SIZES), make_plain_model()
    for client in range(len(SIZES)):
        expected = gradient(model, split.client(client))
        torch.testing.assert_close(history.kept[client]["variate"], expected, rtol=1e-4, atol=1e-6)
    common = gradient(model, split.images("members"))
    torch.testing.assert_close(history.memory["variate"], common, rtol=1e-4, atol=1e-6)


def test_a_client_whose_variate_is_its_gradient_moves_as_everybody_does(engine):
    recipe = Recipe(epochs=1, batch_size=0, lr=0.2)
    split, model = make_split(SIZES), make_plain_model()
    kept = {k: {"variate": gradient(model, split.client(k)).detach()} for k in range(len(SIZES))}
    common = gradient(model, split.images("members")).detach()
    outcome = federate(engine, recipe=recipe).exchange(
        read_vector(model), range(len(SIZES)), 0, payload={"variate": common}, kept=kept
    )
    for update in outcome.delivery.updates:
        torch.testing.assert_close(update.delta, -0.2 * common, rtol=1e-4, atol=1e-6)


def test_the_first_round_is_fedavgs_and_the_second_is_not(engine):
    for rounds, same in ((1, True), (2, False)):
        ours, fedavg = (
            run(engine, rounds=rounds, strategy=strategy, model=make_model())
            for strategy in (SCAFFOLD(), FedAvg())
        )
        assert torch.equal(ours.vector, fedavg.vector) is same


def test_a_probe_without_a_variate_is_answered_as_by_fedavg(engine):
    start = read_vector(make_plain_model())
    ours, fedavg = (
        federate(engine, strategy=strategy).exchange(start, [0, 2], 5).delivery
        for strategy in (SCAFFOLD(), FedAvg())
    )
    assert torch.equal(ours.mean, fedavg.mean)


def test_buffers_are_averaged_whatever_the_servers_rate(engine):
    record, model = Record(), make_model()
    history = run(engine, rounds=1, strategy=SCAFFOLD(server_lr=0.5), model=model, record=record)
    seen, trainable = record.observed(0), 4228
    moved = history.vector - seen.sent
    torch.testing.assert_close(moved[:trainable], 0.5 * seen.delivery.mean[:trainable], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(moved[trainable:], seen.delivery.mean[trainable:], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "defence", ["clipping(norm=0.05)", "pruning(fraction=0.9)", "gaussian-noise(std=0.1)"]
)
def test_what_leaves_a_client_follows_from_its_defended_update(defence, engine):
    record = Record()
    history = run(engine, rounds=1, fraction=1.0, defence=defence, record=record)
    for update in record.observed(0).delivery.updates:
        steps = 2 * {30: 4, 20: 3, 10: 2, 14: 2, 25: 3, 6: 1}[SIZES[update.client]]
        expected = -update.delta / (steps * 0.1)  # both variates were 0
        torch.testing.assert_close(history.kept[update.client]["variate"], expected, rtol=1e-5, atol=1e-7)


def test_a_client_whose_reply_was_lost_keeps_its_variate(engine):
    record = Record()
    history = run(engine, rounds=1, fraction=1.0, channel=Plain(dropout=0.5), record=record)
    assert history.kept.keys() == set(record.observed(0).delivery.clients)
    assert len(history.kept) == 3


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"momentum": 0.9}, "momentum = 0.9"), ({"optimiser": "adam"}, "optimiser = 'adam'")],
)
def test_steps_that_hide_the_mean_gradient_are_refused(wrong, named, engine):
    with pytest.raises(BadInput) as refused:
        federate(engine, recipe=Recipe(**wrong))
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_defence_of_the_sum_is_refused(engine):
    with pytest.raises(BadInput, match="sums more than the updates"):
        run(engine, rounds=1, defence="differential-privacy(clients=3)")


def test_a_round_writes_the_variates_of_its_clients_alone_and_a_killed_one_leaves_no_mixture(
    engine, tmp_path, monkeypatch
):
    whole = run(engine, rounds=5).vector
    run(engine, rounds=2, record=Record(tmp_path))

    def killed(file, tensors, notes=None):
        if file.name.startswith("latest"):
            raise KeyboardInterrupt
        write_tensors(file, tensors, notes)

    with monkeypatch.context() as patched:
        patched.setattr(history, "write_tensors", killed)
        with pytest.raises(KeyboardInterrupt):
            run(engine, rounds=3, record=Record(tmp_path))
    assert torch.equal(run(engine, rounds=5, record=Record(tmp_path)).vector, whole)
    clients = [file.name.rpartition("-")[0] for file in tmp_path.glob("client-*")]
    assert len(clients) == len(set(clients))
