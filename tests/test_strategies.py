"""What all strategies have in common, and those that are one equation: FedProx, FedAvgM, FedAdam."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_model, make_plain_model, make_split
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import batches
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1)
SIZES = (30, 20, 10, 14, 25, 6)
QUICK = {
    "feddf": "feddf(steps=20, patience=10)",
    "fedgen": "fedgen(generator_steps=5)",
    "fed-fsnet": "fed-fsnet(steps=5)",
    "fedrecall": "fedrecall(generator_steps=5)",
}
SUMS_ALONE = ["fedprox", "afl", "fedavgm", "scaffold", "fedadam"]


def run(spec, engine, *, rounds=3, fraction=0.5, model=None, channel=None, record=None, observe=()):
    """A federation of six unequal clients under the strategy that `spec` names."""
    model = make_model() if model is None else model
    strategy = STRATEGIES.make(QUICK.get(spec, spec))
    federation = Federation(
        model, make_split(SIZES), RECIPE, engine=engine, strategy=strategy, channel=channel, seed=3
    )
    plan = Plan(rounds=rounds, fraction=fraction, observe=observe)
    return federation.run(read_vector(model), plan, record=record)


def members_loss(model, vector):
    everyone = make_split(SIZES).images("members")
    write_vector(model, vector)
    return F.cross_entropy(model.eval()(everyone.x), everyone.y).item()


def test_fedsgd_sends_gradients_themselves_where_the_weights_are_too_large_to_show_them(engine):
    model = make_plain_model()
    with torch.no_grad():
        model[-1].bias += 4096  # where float32 has steps of 2**-12; that all are larger leaves the loss
    start, sizes = read_vector(model), (6, 8)
    split = make_split(sizes)

    def update(spec):
        strategy = STRATEGIES.make(spec)
        federation = Federation(
            model, split, RECIPE, engine=engine, strategy=strategy, channel=Plain(), seed=3
        )
        return federation.exchange(start, [1], 0).delivery.updates[0].delta

    images = split.pool[split.clients[1]]
    write_vector(model, start)
    loss = F.cross_entropy(model.train()(images.x), images.y)
    gradient = parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))
    exact, rounded = update("fedsgd(gradients=True)"), update("fedsgd")
    torch.testing.assert_close(exact, -RECIPE.lr * gradient, rtol=1e-5, atol=1e-8)
    steps = rounded[-split.pool.classes :] * 2**12  # of the bias, between whose neighbours lies no change
    assert torch.equal(steps, steps.round())
    assert (rounded - exact).abs()[-split.pool.classes :].max() > 1e-5


@pytest.mark.parametrize("changed", ["weight_decay", "clip_grad_norm"])
def test_gradients_are_not_sent_where_they_are_not_what_the_step_takes(changed):
    recipe = dataclasses.replace(RECIPE, **{changed: 0.5})
    assert STRATEGIES.make("fedsgd").local(recipe).epochs == 1
    with pytest.raises(BadInput, match=f"{changed} = 0.5 acts after the gradient"):
        STRATEGIES.make("fedsgd(gradients=True)").local(recipe)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_strategy_learns_from_half_of_the_clients_at_a_time(name, engine):
    model = make_plain_model()
    start = read_vector(model)
    history = run(name, engine, model=model)
    assert torch.isfinite(history.vector).all()
    assert members_loss(model, history.vector) < members_loss(model, start)
    assert all(len(set(row.clients)) == 3 for row in history.rounds)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_strategy_ends_with_the_same_numbers_when_interrupted(name, engine, tmp_path):
    whole = run(name, engine, rounds=4)
    run(name, engine, rounds=2, record=Record(tmp_path))
    resumed = run(name, engine, rounds=4, record=Record(tmp_path))
    assert torch.equal(resumed.vector, whole.vector)
    assert resumed.rounds == whole.rounds


@pytest.mark.parametrize(
    ("name", "down", "up"),
    [
        ("fedavg", 0, 0),
        ("fedsgd", 0, 0),
        ("fedprox", 0, 0),
        ("afl", 0, 4),
        ("fedavgm", 0, 0),
        ("scaffold", 4 * 4228, 4 * 4228),
        ("fedadam", 0, 0),
    ],
)
def test_what_travels_is_the_model_each_way_and_what_a_strategy_adds(name, down, up, engine):
    assert (Layout.of(make_model()).size, Layout.of(make_model()).trainable) == (4236, 4228)
    for row in run(name, engine).rounds:
        assert (row.down, row.up) == (4 * 4236 + down, 4 * 4236 + up)


@pytest.mark.parametrize("name", SUMS_ALONE)
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_the_sum_is_all_they_need(name, dropout, engine):
    channels = Plain(dropout=dropout), Secure(dropout_before=dropout)
    plain, secure = (
        run(name, engine, rounds=3, fraction=0.7, model=make_plain_model(), channel=channel)
        for channel in channels
    )
    assert [row.clients for row in plain.rounds] == [row.clients for row in secure.rounds]
    torch.testing.assert_close(secure.vector, plain.vector, rtol=0, atol=2e-4)


def test_the_numbers_do_not_depend_on_the_workers(engine):
    with Engine(2) as running:
        for name in ("afl", "scaffold"):  # what clients report, and what they keep and sum
            alone, together = (run(name, one, rounds=2, fraction=0.7) for one in (engine, running))
            assert torch.equal(alone.vector, together.vector), name
            assert alone.rounds == together.rounds


@pytest.mark.parametrize("spec", ["fedprox(mu=0.0)", "fedavgm(momentum=0.0)"])
def test_without_what_they_add_they_are_fedavg(spec, engine):
    assert torch.equal(run(spec, engine).vector, run("fedavg", engine).vector)


@pytest.mark.parametrize("name", SUMS_ALONE)
def test_they_are_values(name):
    one, other = STRATEGIES.make(name), STRATEGIES.make(name)
    assert one == other
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, dataclasses.fields(one)[0].name, 0.5)


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("afl(alpha1=1.5)", "afl alpha1 = 1.5 is out of range; it must be a number at least 0 and at most 1"),
        ("afl(alpha2=-0.1)", "afl alpha2 = -0.1 is out of range; it must be a number at least 0"),
        ("afl(alpha3='all')", "afl alpha3 = 'all' is out of range"),
        ("fedprox(mu=-1)", "fedprox mu = -1 is out of range; it must be a number at least 0"),
        ("scaffold(server_lr=0)", "scaffold server_lr = 0 is out of range; it must be a number above 0"),
        (
            "fedavgm(momentum=1.0)",
            "fedavgm momentum = 1.0 is out of range; it must be a number at least 0 and below 1",
        ),
        ("fedavgm(server_lr=-1.0)", "fedavgm server_lr = -1.0 is out of range"),
        ("fedadam(beta1=1)", "fedadam beta1 = 1 is out of range; it must be a number at least 0 and below 1"),
        ("fedadam(beta2=-0.5)", "fedadam beta2 = -0.5 is out of range"),
        ("fedadam(tau=0)", "fedadam tau = 0 is out of range; it must be a number above 0"),
        ("fedadam(beta=0.9)", "unexpected keyword argument 'beta'"),
    ],
)
def test_impossible_options_are_refused_in_one_line(spec, rule):
    with pytest.raises(BadInput) as refused:
        STRATEGIES.make(spec)
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("mu", [0.05, 1.0])
def test_fedprox_descends_on_the_loss_and_its_proximal_term(mu, engine):
    history = run(f"fedprox(mu={mu})", engine, model=make_plain_model())
    vector, split = read_vector(make_plain_model()), make_split(SIZES)
    for row in history.rounds:
        samples = sum(SIZES[client] for client in row.clients)
        vector = sum(
            SIZES[client]
            / samples
            * _with_proximal_term(vector, split.client(client), mu, row.number, client)
            for client in row.clients
        )
    torch.testing.assert_close(history.vector, vector, rtol=1e-4, atol=1e-5)


def _with_proximal_term(sent, images, mu, number, client):
    """A client's epochs by plain SGD on the loss that the paper writes down."""
    model = make_plain_model()
    vector_to_parameters(sent.clone(), model.parameters())
    seed = derive(derive(3, "round", number), "client", client)
    for batch in batches(len(images), RECIPE, numpy_rng(seed, "batches")):
        weights = list(model.parameters())
        distance = (parameters_to_vector(weights) - sent).square().sum()
        loss = F.cross_entropy(model(images.x[batch]), images.y[batch]) + mu / 2 * distance
        with torch.no_grad():
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights)):
                weight -= RECIPE.lr * gradient
    return parameters_to_vector(model.parameters()).detach()


def test_fedprox_keeps_clients_closer_to_the_model_sent(engine):
    start, lengths = read_vector(make_plain_model()), []
    for mu in (0.0, 1.0, 5.0):
        history = run(f"fedprox(mu={mu})", engine, rounds=1, model=make_plain_model())
        lengths.append((history.vector - start).norm().item())
    assert lengths == sorted(lengths, reverse=True)


def momentum_steps(means, *, server_lr, momentum):
    """Where the weights go by Hsu et al.: v = b v + d, w = w + v."""
    velocity = np.zeros_like(means[0])
    for mean in means:
        velocity = momentum * velocity + mean
        yield server_lr * velocity


def adam_steps(means, *, server_lr, beta1, beta2, tau):
    """Where the weights go by Algorithm 2 of Reddi et al., with v_{-1} = tau^2."""
    first, second = np.zeros_like(means[0]), np.full_like(means[0], tau**2)
    for mean in means:
        first = beta1 * first + (1 - beta1) * mean
        second = beta2 * second + (1 - beta2) * mean**2
        yield server_lr * first / (np.sqrt(second) + tau)


@pytest.mark.parametrize(
    ("name", "steps", "options"),
    [
        ("fedavgm", momentum_steps, {"server_lr": 1.0, "momentum": 0.9}),
        ("fedavgm", momentum_steps, {"server_lr": 0.3, "momentum": 0.5}),
        ("fedadam", adam_steps, {"server_lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
        ("fedadam", adam_steps, {"server_lr": 0.1, "beta1": 0.0, "beta2": 0.5, "tau": 0.1}),
    ],
)
def test_the_server_steps_as_published_and_averages_buffers(name, steps, options, engine):
    record = Record()
    spec = f"{name}({', '.join(f'{key}={value}' for key, value in options.items())})"
    last = run(spec, engine, rounds=4, channel=Plain(dropout=0.3), record=record, observe=range(4)).vector
    seen = [record.observed(number) for number in range(4)]
    sent = [one.sent.double().numpy() for one in seen] + [last.double().numpy()]
    means = [_mean(one.delivery.updates) for one in seen]
    trainable = Layout.of(make_model()).trainable
    for number, step in enumerate(steps([mean[:trainable] for mean in means], **options)):
        moved = sent[number + 1] - sent[number]
        np.testing.assert_allclose(moved[:trainable], step, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(moved[trainable:], means[number][trainable:], rtol=1e-4, atol=1e-6)
    assert all(len(one.delivery.updates) == 2 for one in seen)  # one of three dropped out of each round


def _mean(updates):
    """The mean update by N_k / N over those that arrived."""
    samples = sum(SIZES[update.client] for update in updates)
    return sum(SIZES[update.client] / samples * update.delta.double().numpy() for update in updates)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_the_page_of_strategies_has_all_of_them_with_their_options(name):
    page = (Path(__file__).parent.parent / "docs" / "strategies.md").read_text()
    (row,) = [line for line in page.splitlines() if re.match(rf"\| `{name}` \(", line)]
    strategy = STRATEGIES.make(name)
    options = dataclasses.fields(strategy) if dataclasses.is_dataclass(strategy) else ()
    listed = row.rstrip(" |").rpartition("|")[2] if options else ""
    assert re.findall(r"`([^`]+)`", listed) == [f"{one.name}={one.default!r}" for one in options]
    behind_a_sum = row.split("|")[5].strip()
    assert behind_a_sum.startswith("no" if strategy.needs_updates else "yes")
    assert ("in the clear" in behind_a_sum) == (bool(strategy.client_reports) and not strategy.needs_updates)
