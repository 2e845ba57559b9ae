import dataclasses

import numpy as np
import pytest
import torch
from conftest import CLASSES, make_images, make_model, make_plain_model, make_server, make_split
from teaching import (
    GENERATING,
    RECIPE,
    make_delivery,
    normal,
    run,
    softmax,
)
from torch import nn

from glasshouse.errors import BadInput
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.generator import (
    Generator,
    Teachers,
    diversity_loss,
    read_moments,
    train_generator,
    write_moments,
)
from glasshouse.federation.strategies.recalling import FedGEN, recall_loss
from glasshouse.federation.strategies.strategy import LocalTask
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout, read_vector, write_vector


def test_teachers_count_by_their_share_of_each_label():
    weight, bias = normal(3, CLASSES, 5), normal(3, CLASSES, seed=1)
    counts = np.array([[8, 0, 2, 0], [0, 6, 2, 0], [2, 6, 4, 0]])
    latent, labels = normal(7, 5, seed=2), torch.tensor([0, 1, 2, 2, 1, 0, 2])
    expected = 0.0
    for z, y in zip(latent.numpy(), labels.tolist()):
        for k in range(3):
            p = softmax((weight[k].numpy() @ z + bias[k].numpy())[None])[0, y]
            expected -= counts[k, y] / counts[:, y].sum() * np.log(p) / 7
    known = Teachers(weight, bias, torch.from_numpy(counts))
    assert known.loss(latent, labels).item() == pytest.approx(expected, rel=1e-5)
    assert known.labels.tolist() == [0, 1, 2]


def test_a_teacher_without_any_image_of_a_label_has_no_say_in_it():
    counts, latent = torch.tensor([[4, 0], [0, 4]]), normal(6, 5)
    weight, bias = normal(2, 2, 5), torch.zeros(2, 2)
    ones = torch.zeros(6, dtype=torch.int64)
    before = Teachers(weight, bias, counts).loss(latent, ones)
    assert torch.equal(
        Teachers(torch.stack([weight[0], -weight[1]]), bias, counts).loss(latent, ones), before
    )


def test_diversity_loss_falls_with_the_distance_that_different_noise_makes():
    noise, latent = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)), normal(5, 4)
    e, z = noise.numpy(), latent.numpy()
    mean = np.mean(
        [np.mean((e[i] - e[j]) ** 2) * np.mean(abs(z[i] - z[j])) for i in range(5) for j in range(5)]
    )
    assert diversity_loss(noise, latent).item() == pytest.approx(np.exp(-mean), rel=1e-5)
    assert diversity_loss(noise, latent[:1].expand(5, -1)) == 1


def test_clients_learn_synthetic_labels_and_to_answer_as_to_synthetic_features():
    real, synthetic = normal(3, 4).requires_grad_(), normal(8, 4, seed=1).requires_grad_()
    drawn = torch.tensor([0, 3, 3, 1, 2])
    p, q = (softmax(logits.detach().numpy()) for logits in (real, synthetic))
    expected = -np.log(q[3:][range(5), drawn]).mean() + (q[:3] * np.log(q[:3] / p)).sum(1).mean()
    loss = recall_loss(real, synthetic, drawn)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert not synthetic.grad[:3].any()  # the features of the batch are a target
    assert synthetic.grad[3:].any()
    np.testing.assert_allclose(real.grad, (p - q[:3]) / 3, atol=1e-6)


def test_a_client_feeds_its_last_layer_with_what_the_generator_in_eval_mode_makes_of_uniform_labels():
    strategy = FedGEN(noise=2, hidden=6, batch_size=40_000)
    model, images = make_plain_model(), make_images(8)
    generator = Generator(2, CLASSES, 6, 16)
    first, norm, _, second = generator.layers
    with torch.no_grad():
        first.weight[:, :2] = 0  # so that its output follows from the label alone
        norm.running_mean.copy_(normal(6))
        norm.running_var.copy_(normal(6, seed=1).abs() + 0.1)
    payload = {"generator": read_vector(generator), "weight": torch.tensor(3.0)}
    steps = []

    def listen(step):
        steps.append(step)
        return torch.zeros(1)

    strategy.train(
        LocalTask(model, Layout.of(model), read_vector(model), images, RECIPE, payload, {}, listen, seed=0)
    )
    logits = model(images.x)
    hidden = (first.weight[:, 2:].T + first.bias - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    latent = hidden.clamp(min=0) @ second.weight.T + second.bias
    q = softmax((latent @ model[-1].weight.T + model[-1].bias).detach().numpy())
    p, target = softmax(logits.detach().numpy()), q[images.y]
    expected = -np.log(np.diag(q)).mean() + (target * np.log(target / p)).sum(1).mean()
    assert steps[0].loss(model, logits, images.y).item() == pytest.approx(3 * expected, rel=0.02)


def test_the_teachers_are_the_last_layers_of_those_whose_updates_arrived():
    server = make_server()
    delivery = make_delivery(server)
    delivery = dataclasses.replace(delivery, updates=(delivery.updates[2], delivery.updates[0]))
    counts = torch.arange(3 * CLASSES).view(3, CLASSES)
    server = dataclasses.replace(server, memory={"labels": counts})
    delivery = dataclasses.replace(delivery, reports={})
    known = GENERATING.teachers(server, delivery, server.module[-1])
    for place, client in enumerate((2, 0)):
        model = make_model()
        write_vector(model, server.vector + delivery.updates[place].delta)
        assert torch.equal(known.weight[place], model[-1].weight)
        assert torch.equal(known.bias[place], model[-1].bias)
        assert torch.equal(known.counts[place], counts[client])


def test_the_generator_learns_what_its_teachers_recognise():
    known = Teachers(normal(2, CLASSES, 5), normal(2, CLASSES, seed=1), torch.tensor([[5] * 4, [3, 0, 9, 0]]))
    torch.manual_seed(0)
    generator, rng = Generator(4, CLASSES, 16, 5), torch.Generator().manual_seed(0)
    labels = torch.arange(40) % CLASSES
    noise = generator.draw(40, rng)
    before = known.loss(generator(noise, labels), labels)
    optimiser = torch.optim.Adam(generator.parameters(), 0.01)
    train_generator(generator, known, optimiser, steps=100, batch_size=16, diversity=1.0, rng=rng)
    assert known.loss(generator(noise, labels), labels) < 0.5 * before


def test_adam_goes_on_from_what_it_remembers():
    known = Teachers(normal(1, CLASSES, 5), normal(1, CLASSES), torch.full((1, CLASSES), 5))
    ends = []
    for pause in (False, True):
        torch.manual_seed(0)
        generator, rng = Generator(3, CLASSES, 8, 5), torch.Generator().manual_seed(1)
        optimiser = torch.optim.Adam(generator.parameters(), 0.01, weight_decay=0.01, fused=True)
        for _ in range(2):
            train_generator(generator, known, optimiser, steps=4, batch_size=8, diversity=1.0, rng=rng)
            if pause:
                remembered = read_moments(optimiser)
                optimiser = torch.optim.Adam(generator.parameters(), 0.01, weight_decay=0.01, fused=True)
                write_moments(optimiser, **remembered)
        ends.append(read_vector(generator))
    assert torch.equal(*ends)


def test_fedgen_sends_nothing_first_and_then_its_generator_with_a_fading_weight():
    strategy, server = FedGEN(weight=10.0, decay=0.98), make_server()
    server = dataclasses.replace(server, memory=strategy.begin(server))
    assert strategy.brief(server) == {}
    payload = strategy.brief(dataclasses.replace(server, number=5))
    assert payload["weight"].item() == pytest.approx(10 * 0.98**5)
    assert torch.equal(payload["generator"], server.memory["generator"])


def test_fedgen_remembers_the_label_counts_that_clients_tell():
    split, record = make_split((30, 20, 10)), Record()
    with Engine(1) as engine:
        federation = Federation(make_model(), split, RECIPE, engine=engine, strategy=GENERATING)
        start = read_vector(make_model())
        history = federation.run(start, Plan(rounds=1, fraction=0.6, observe=(0,)), record=record)
    asked = history.rounds[0].clients
    for client in range(3):
        counts = torch.bincount(split.client(client).y, minlength=CLASSES) if client in asked else 0
        assert torch.equal(history.memory["labels"][client], torch.zeros(CLASSES, dtype=torch.int64) + counts)
    assert set(record.observed(0).delivery.reports) == set(asked)


def test_without_weight_fedgen_is_fedavg(engine):
    plain, generating = run(FedAvg(), engine), run(dataclasses.replace(GENERATING, weight=0.0), engine)
    assert torch.equal(generating.vector, plain.vector)
    assert [row.acc_global for row in generating.rounds] == [row.acc_global for row in plain.rounds]


def test_the_generator_has_its_say_from_the_second_round_on(engine):
    for rounds, same in ((1, True), (2, False)):
        vectors = [run(strategy, engine, rounds=rounds).vector for strategy in (FedAvg(), GENERATING)]
        assert torch.equal(*vectors) == same


def test_fedgen_needs_a_network_that_ends_in_a_linear_layer(engine):
    def bounded():
        return nn.Sequential(make_plain_model(), nn.Tanh())

    with pytest.raises(BadInput, match="does not end in a linear layer"):
        run(FedGEN(), engine, model=bounded)


def test_fedgen_feeds_a_last_layer_without_biases(engine):
    def unbiased():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES, bias=False))

    history = run(GENERATING, engine, model=unbiased)
    assert len(history.memory["generator"]) > 0
    assert history.vector.isfinite().all()
