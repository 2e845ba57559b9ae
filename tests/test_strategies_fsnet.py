import math

import numpy as np
import pytest
import torch
from conftest import CLASSES, SHAPE, make_images, make_model, make_plain_model, make_server, make_split
from torch import nn

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.fsnet import FedFSNet
from glasshouse.federation.strategies.strategy import LocalTask, divergence
from glasshouse.federation.strategies.synthesis import (
    hidden_model,
    mixture,
    moments,
    near_certain,
    reconstruction_loss,
    train_hidden,
)
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe

RECIPE = Recipe(epochs=1, batch_size=8, lr=0.1)
SMALL = {"samples": 8, "hidden": 12, "steps": 5, "batch_size": 10}


def run(strategy, engine, *, rounds=3, model=None, channel=None, record=None, sizes=(30, 20, 10, 14)):
    model = model or make_model()
    federation = Federation(
        model, make_split(sizes), RECIPE, engine=engine, strategy=strategy, channel=channel, seed=3
    )
    return federation.run(read_vector(model), Plan(rounds=rounds, fraction=0.5), record=record)


def test_moments_are_the_mean_and_variance_over_all_pixels():
    images = make_images(9)
    pixels = images.x.numpy().astype(float).ravel()
    np.testing.assert_allclose(moments(images), [pixels.mean(), pixels.var()], rtol=1e-6)


def test_the_mixture_has_the_mean_and_variance_that_its_shares_say():
    known, shares = torch.tensor([[0.1, 0.04], [0.7, 0.01]]), torch.tensor([0.25, 0.75])
    draws = mixture(known, shares, 4000, SHAPE, torch.Generator().manual_seed(0)).flatten(1)
    mean = 0.25 * 0.1 + 0.75 * 0.7
    variance = 0.25 * (0.04 + 0.1**2) + 0.75 * (0.01 + 0.7**2) - mean**2
    assert draws.mean().item() == pytest.approx(mean, abs=0.02)
    assert draws.var().item() == pytest.approx(variance, abs=0.01)
    first = (draws.mean(1) < 0.4).double().mean().item()
    assert first == pytest.approx(0.25, abs=0.03)  # a draw belongs to one device, not to a blend of them


def test_equation_3_is_the_mean_of_euclidean_distances():
    images, z = torch.rand(5, *SHAPE), torch.rand(5, *SHAPE)
    expected = np.mean([np.sqrt(((images[i] - z[i]).numpy() ** 2).sum()) for i in range(5)])
    assert reconstruction_loss(images, z).item() == pytest.approx(expected, rel=1e-6)


def test_the_hidden_model_follows_adam_on_equation_3_while_the_classifier_stays_fixed():
    torch.manual_seed(0)
    classifier, hidden = make_plain_model().eval(), hidden_model(SHAPE, CLASSES, 6)
    before, start = read_vector(classifier), {n: p.detach().clone() for n, p in hidden.named_parameters()}
    z = torch.rand(7, *SHAPE)
    train_hidden(hidden, classifier, iter([z]), steps=1, lr=0.01)
    assert torch.equal(read_vector(classifier), before)
    # Adam's first step moves every weight by lr against the sign of its gradient, taken here by hand.
    first, second = start["0.weight"].double(), start["2.weight"].double()
    p = classifier(z).softmax(1).detach().double()
    inner = p @ first.T + start["0.bias"].double()
    out = inner.clamp(min=0) @ second.T + start["2.bias"].double()
    off = out - z.flatten(1).double()
    slope = off / off.norm(dim=1, keepdim=True) / len(z)
    back = (slope @ second) * (inner > 0)
    moved = {n: (p.detach() - start[n]).double() for n, p in hidden.named_parameters()}
    for name, gradient in (
        ("2.weight", slope.T @ inner.clamp(min=0)),
        ("0.weight", back.T @ p),
    ):
        clear = gradient.abs() > 1e-5
        expected = -0.01 * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(moved[name][clear], expected[clear], rtol=2e-3, atol=1e-6)


def test_the_hidden_model_learns_to_invert():
    torch.manual_seed(0)
    classifier = make_plain_model().eval()
    hidden = hidden_model(SHAPE, CLASSES, 32)
    rng = torch.Generator().manual_seed(1)
    known = torch.tensor([[0.1, 0.001], [0.9, 0.001]])

    def noise():
        while True:
            yield mixture(known, torch.ones(2), 40, SHAPE, rng)

    held = next(noise())
    loss = [reconstruction_loss(hidden(classifier(held).softmax(1)), held).item()]
    train_hidden(hidden, classifier, noise(), steps=300, lr=1e-2)
    loss.append(reconstruction_loss(hidden(classifier(held).softmax(1)), held).item())
    blind = reconstruction_loss(torch.full_like(held, 0.5), held).item()
    assert loss[1] < 0.5 * blind < loss[0]


def test_equation_9_feeds_nearly_certain_probabilities():
    rows = near_certain(torch.tensor([0, 2, 1]), 4, torch.tensor([0.7, 0.91, 1.0]))
    expected = [[0.7, 0.1, 0.1, 0.1], [0.03, 0.03, 0.91, 0.03], [0, 1, 0, 0]]
    torch.testing.assert_close(rows, torch.tensor(expected))


def test_mimic_samples_cover_all_classes_and_are_what_the_hidden_model_makes_of_them():
    server, strategy = make_server(), FedFSNet(samples=10, confidence=(0.9, 0.9))
    hidden = hidden_model(SHAPE, CLASSES, 5)
    synthetic = strategy.synthesise(server, hidden)
    assert sorted(torch.bincount(synthetic["classes"]).tolist()) == [2, 2, 3, 3]
    fed = np.full((10, CLASSES), 0.1 / 3)
    fed[np.arange(10), synthetic["classes"]] = 0.9
    with torch.no_grad():
        torch.testing.assert_close(synthetic["mimic"], hidden(torch.tensor(fed, dtype=torch.float32)))


def visited(strategy, payload, model):
    """The step that a client trains with, caught before it does."""
    steps = []

    def fit(step):
        steps.append(step)
        return torch.zeros(1)

    layout, images = Layout.of(model), make_images(6)
    strategy.train(LocalTask(model, layout, read_vector(model), images, RECIPE, payload, {}, fit, 0))
    return steps[0]


def test_equation_10_adds_beta_times_the_divergence_of_the_uniform_distribution():
    model = make_plain_model()
    mimic = torch.rand(5, *SHAPE)
    payload = {"mimic": mimic, "classes": torch.arange(5) % CLASSES, "beta": torch.tensor(0.3)}
    step = visited(FedFSNet(), payload, model)
    p = model(mimic).softmax(1).detach().double().numpy()
    u = np.full_like(p, 1 / CLASSES)
    expected = 0.3 * np.mean((u * np.log(u / p)).sum(1))
    assert step.loss(model, torch.zeros(2, CLASSES), torch.zeros(2)).item() == pytest.approx(
        expected, rel=1e-5
    )


def test_the_features_stand_for_the_samples_they_came_from():
    model, server = make_plain_model(), make_server(make_plain_model())
    write_vector(server.module, read_vector(model))
    hidden = hidden_model(SHAPE, CLASSES, 5)
    mimic = FedFSNet().synthesise(server, hidden)
    sent = FedFSNet(form="features").synthesise(server, hidden)
    assert sent["features"].shape == (60, 16)
    assert "mimic" not in sent
    both = [visited(FedFSNet(), payload | {"beta": torch.tensor(1.0)}, model) for payload in (mimic, sent)]
    values = [step.loss(model, torch.zeros(1), torch.zeros(1)).item() for step in both]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize("target", ["class", "global"])
def test_other_targets_are_the_class_or_the_answer_of_the_global_model(target):
    model = make_plain_model()
    mimic, classes = torch.rand(5, *SHAPE), torch.arange(5) % CLASSES
    payload = {"mimic": mimic, "classes": classes, "beta": torch.tensor(1.0)}
    step = visited(FedFSNet(target=target), payload, model)
    value = step.loss(model, torch.zeros(1), torch.zeros(1)).item()
    if target == "global":
        assert value == pytest.approx(0, abs=1e-6)  # nothing has moved yet
    else:
        p = model(mimic).softmax(1).detach()[torch.arange(5), classes]
        assert value == pytest.approx(-p.log().mean().item(), rel=1e-5)


def test_divergence_from_itself_is_nothing():
    logits = torch.randn(4, 3)
    assert divergence(logits.softmax(1), logits).item() == pytest.approx(0, abs=1e-6)


def test_beta_falls_to_a_tenth_every_ten_rounds_and_the_first_round_has_no_samples():
    strategy = FedFSNet()
    memory = {"mimic": torch.zeros(1), "classes": torch.zeros(1), "hidden": torch.zeros(1)}
    betas = [strategy.brief(make_server(number=n, memory=memory))["beta"].item() for n in (1, 9, 10, 25, 49)]
    np.testing.assert_allclose(betas, [1, 1, 0.1, 0.01, 1e-4], rtol=1e-6)
    assert strategy.brief(make_server(memory=strategy.begin(make_server()))) == {}
    assert set(strategy.brief(make_server(number=1, memory=memory))) == {"mimic", "classes", "beta"}


def test_the_first_round_is_fedavg_and_the_second_is_not(engine):
    for rounds, same in ((1, True), (2, False)):
        rectified, plain = (run(s, engine, rounds=rounds).vector for s in (FedFSNet(**SMALL), FedAvg()))
        assert torch.equal(rectified, plain) is same


def test_without_beta_it_is_fedavg(engine):
    rectified, plain = (run(s, engine, rounds=4).vector for s in (FedFSNet(beta=0.0, **SMALL), FedAvg()))
    assert torch.equal(rectified, plain)


def test_the_server_knows_the_moments_of_those_who_took_part_and_of_nobody_else(engine):
    history = run(FedFSNet(**SMALL), engine, rounds=2)
    seen = {client for row in history.rounds for client in row.clients}
    known = history.memory["moments"]
    split = make_split((30, 20, 10, 14))
    for client in range(4):
        if client in seen:
            torch.testing.assert_close(known[client], moments(split.client(client)))
        else:
            assert known[client].isnan().all()


def test_dropped_out_clients_tell_nothing(engine):
    history = run(FedFSNet(**SMALL), engine, rounds=1, channel=Plain(dropout=0.5))
    assert (~history.memory["moments"][:, 0].isnan()).sum() == 1


def test_bytes_count_the_model_the_samples_and_the_moments(engine):
    history = run(FedFSNet(**SMALL), engine, rounds=2)
    model = 4 * len(history.vector)
    first, second = history.rounds
    assert (first.down, first.up) == (model, model + 8)
    assert second.down == model + 8 * 64 * 4 + 8 * 8 + 4


def test_features_take_less_than_samples(engine):
    rows = [
        run(FedFSNet(form=form, **SMALL), engine, rounds=2).rounds[1].down for form in ("samples", "features")
    ]
    assert rows[0] - rows[1] == 8 * (64 - 16) * 4


def test_it_resumes_with_the_same_numbers(engine, tmp_path):
    whole = run(FedFSNet(**SMALL), engine, rounds=4).vector
    run(FedFSNet(**SMALL), engine, rounds=2, record=Record(tmp_path))
    resumed = run(FedFSNet(**SMALL), engine, rounds=4, record=Record(tmp_path))
    assert torch.equal(resumed.vector, whole)


def test_the_sum_is_enough_for_it(engine):
    shown = run(FedFSNet(**SMALL), engine, model=make_plain_model())
    masked = run(FedFSNet(**SMALL), engine, model=make_plain_model(), channel=Secure())
    torch.testing.assert_close(masked.vector, shown.vector, atol=1e-4, rtol=0)


@pytest.mark.parametrize("mixture", ["varied", "sizes", "single"])
def test_every_mixture_makes_finite_samples_of_the_images_shape(mixture):
    server = make_server()
    strategy = FedFSNet(mixture=mixture, **SMALL)
    memory = strategy.begin(server)
    reports = {0: {"moments": torch.tensor([0.3, 0.02])}, 2: {"moments": torch.tensor([0.5, 0.0])}}
    delivery = Delivery(torch.zeros_like(server.vector), 40, (0, 2), reports=reports)
    vector, memory = strategy.combine(make_server(memory=memory), delivery)
    assert torch.equal(vector, server.vector)
    assert memory["mimic"].shape == (8, *SHAPE)
    assert memory["mimic"].isfinite().all()


@pytest.mark.parametrize(
    "options",
    [
        "samples=0",
        "hidden=0",
        "steps=1.5",
        "lr=0",
        "beta=-1",
        "decay=2",
        "every=0",
        "confidence=(0.0,1.0)",
        "confidence=0.9",
        "confidence=(0.9,0.8)",
        "confidence=('a',1)",
        "confidence=(True,True)",
        "mixture='none'",
        "form='bytes'",
        "target='mean'",
    ],
)
def test_options_out_of_range_are_refused_in_one_line(options):
    with pytest.raises(BadInput) as refused:
        STRATEGIES.make(f"fed-fsnet({options})")
    assert "fed-fsnet" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert options.partition("=")[0] in str(refused.value)


def test_a_network_without_a_linear_layer_at_its_end_has_no_features():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES), nn.Tanh())
    with pytest.raises(BadInput, match="does not end in a linear layer"):
        FedFSNet(form="features").begin(make_server(model))
    assert math.isnan(FedFSNet().begin(make_server(model))["moments"][0, 0])


def test_fewer_samples_than_classes_are_refused():
    with pytest.raises(BadInput, match="samples = 3 is out of range"):
        FedFSNet(samples=3).begin(make_server())


def test_mimic_samples_leave_no_trace_in_batch_norms_statistics(engine):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
    strategies = FedFSNet(beta=1e-12, **SMALL), FedAvg()
    nearly, plain = (run(strategy, engine, model=model).vector for strategy in strategies)
    torch.testing.assert_close(nearly, plain, rtol=0, atol=1e-6)
