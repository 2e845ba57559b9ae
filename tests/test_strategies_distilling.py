import dataclasses

import numpy as np
import pytest
import torch
from conftest import CLASSES, make_images, make_model, make_plain_model, make_server, make_split
from torch import nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import Ideal, Plain
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.divergence import divergence
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.feddf import FedDF, taught
from glasshouse.federation.strategies.fedgen import FedGEN
from glasshouse.federation.strategies.generator import (
    Generator,
    Teachers,
    crowding,
    read_moments,
    train_generator,
    write_moments,
)
from glasshouse.federation.strategies.recalling import recalled
from glasshouse.federation.strategies.strategy import Visit
from glasshouse.federation.updates import Update
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import accuracy
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1)
DISTILLING = FedDF(steps=12, batch_size=16)
GENERATING = FedGEN(noise=6, hidden=12, generator_steps=5, batch_size=8)
UNEQUAL = (30, 20, 10, 7, 5, 4, 3, 9, 8, 6)
BOTH = pytest.mark.parametrize("strategy", [DISTILLING, GENERATING], ids=["feddf", "fedgen"])


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_delivery(server, sizes=(30, 20, 10), scale=0.3, reports=None):
    updates = [
        Update(client, size, scale * normal(server.layout.size, seed=client).abs())
        for client, size in enumerate(sizes)
    ]
    return dataclasses.replace(Plain().deliver(updates, seed=0), reports=reports or {})


def make_specialists(server):
    """What clients send that have seen two classes each: apart they know all, their average little."""
    images = make_images(80)
    updates = []
    for client in range(CLASSES):
        own = images[(images.y - client) % CLASSES < 2]
        trained = fit(make_model(), server.vector, own, Recipe(epochs=2, batch_size=8, lr=0.1), client)
        updates.append(Update(client, len(own), trained - server.vector))
    return Plain().deliver(updates, seed=0)


def run(strategy, engine, *, rounds=3, channel=None, record=None, split=None, fraction=1.0, model=make_model):
    federation = Federation(
        model(), split or make_split(), RECIPE, engine=engine, strategy=strategy, channel=channel, seed=2
    )
    return federation.run(read_vector(model()), Plan(rounds=rounds, fraction=fraction), record=record)


def test_the_students_target_is_the_softmax_of_the_mean_of_the_teachers_logits():
    model, x = make_plain_model(), make_images(9).x
    states = [read_vector(model) + 0.2 * normal(len(read_vector(model)), seed=seed) for seed in range(3)]
    logits = []
    for state in states:
        named = {name: tensor.numpy() for name, tensor in Layout.of(model).named(state).items()}
        hidden = np.maximum(x.flatten(1).numpy() @ named["1.weight"].T + named["1.bias"], 0)
        logits.append(hidden @ named["3.weight"].T + named["3.bias"])
    np.testing.assert_allclose(taught(model, states, x), softmax(np.mean(logits, 0)), rtol=1e-4)


def test_the_divergence_is_that_of_kullback_and_leibler():
    target, logits = softmax(normal(6, 4).numpy()), normal(6, 4, seed=1)
    expected = (target * np.log(target / softmax(logits.numpy()))).sum(1).mean()
    assert divergence(torch.from_numpy(target), logits).item() == pytest.approx(expected, rel=1e-5)


def test_distilling_is_adam_on_the_divergence_with_a_rate_annealed_by_a_cosine():
    images, target = make_images(20), normal(20, CLASSES).mul(3).softmax(1)
    student = make_plain_model()
    start = read_vector(student)
    optimiser = torch.optim.Adam(student.parameters(), 0.05)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 7)
    for _ in range(7):
        log_p = student(images.x).log_softmax(1)
        loss = (target * (target.log() - log_p)).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        annealing.step()
    expected = read_vector(student)
    labelled = Images(images.x, student(images.x).argmax(1), CLASSES)  # so that the last student is the best
    strategy = FedDF(steps=7, batch_size=20, lr=0.05)
    reached = strategy.distil(make_plain_model(), start, images.x, target, labelled, seed=0)
    assert not torch.equal(reached, start)
    torch.testing.assert_close(reached, expected, rtol=1e-3, atol=1e-4)


def test_without_steps_feddf_is_fedavg(engine):
    assert torch.equal(run(FedDF(steps=0), engine).vector, run(FedAvg(), engine).vector)


@pytest.mark.parametrize("lr", [1e-4, 0.01, 100.0])
def test_what_feddf_returns_is_never_worse_on_validation_than_the_average(lr):
    server, strategy = make_server(), FedDF(steps=200, batch_size=16, lr=lr, validation=0.5)
    server = dataclasses.replace(server, memory=strategy.begin(server))
    delivery = make_specialists(server)
    vector, memory = strategy.combine(server, delivery)
    scores = []
    for state in (server.vector + delivery.mean, vector):
        write_vector(server.module, state)
        scores.append(accuracy(server.module, server.own[memory["validation"]]))
    assert scores[1] >= scores[0]
    if lr == 0.01:
        assert scores[1] > scores[0]


def test_students_that_are_no_better_leave_the_average_as_it_is():
    server, strategy = make_server(), FedDF(steps=20)
    server = dataclasses.replace(server, memory=strategy.begin(server))
    write_vector(server.module, server.vector + make_delivery(server).mean)
    # Labels that the average gets right: no student can be better.
    own = Images(server.own.x, server.module.eval()(server.own.x).argmax(1), CLASSES)
    server = dataclasses.replace(server, own=own)
    vector, _ = strategy.combine(server, make_delivery(server))
    assert torch.equal(vector, server.vector + make_delivery(server).mean)


@pytest.mark.parametrize(("patience", "taken"), [(100, 100), (101, 200), (250, 300)])
def test_distilling_ends_when_patience_has_found_no_better_student(patience, taken):
    student, images = make_plain_model(), make_images(20)
    labelled = Images(images.x, student(images.x).argmax(1), CLASSES)
    batches = []
    student.register_forward_hook(lambda network, given, logits: batches.append(network.training))
    target = student(images.x).detach().softmax(1)
    strategy = FedDF(patience=patience, batch_size=20)
    strategy.distil(student.eval(), read_vector(student), images.x, target, labelled, seed=0)
    assert sum(batches[1:]) == taken


def test_feddf_distils_on_all_its_images_but_those_that_validate_in_every_round():
    used = []

    class Watched(FedDF):
        def distil(self, student, start, x, target, labelled, seed):
            used.append((x, labelled.x))
            return super().distil(student, start, x, target, labelled, seed)

    strategy = Watched(steps=2)
    server = make_server()
    memory = strategy.begin(server)
    for number in range(3):
        now = dataclasses.replace(server, memory=memory, number=number)
        _, memory = strategy.combine(now, make_delivery(now))
    images = {row.numpy().tobytes(): place for place, row in enumerate(server.own.x)}
    for distilled, validating in used:
        first, second = ({images[row.numpy().tobytes()] for row in rows} for rows in (distilled, validating))
        assert first.isdisjoint(second)
        assert first | second == set(range(40))
        assert len(second) == 8
        assert torch.equal(validating, used[0][1])


def test_feddf_looks_at_no_label_but_those_that_validate():
    strategy, server = FedDF(steps=100, batch_size=16, lr=0.01, validation=0.5), make_server()
    memory, delivery = strategy.begin(server), make_specialists(server)
    hidden = torch.full_like(server.own.y, CLASSES - 1)
    hidden[memory["validation"]] = server.own.y[memory["validation"]]
    vectors = []
    for y in (server.own.y, hidden):
        now = dataclasses.replace(server, memory=memory, own=Images(server.own.x, y, CLASSES))
        vectors.append(strategy.combine(now, delivery)[0])
    assert torch.equal(*vectors)
    assert not torch.equal(vectors[0], server.vector + delivery.mean)


def test_distilling_leaves_the_servers_module_its_counters():
    server, strategy = make_server(), FedDF(steps=3)
    server = dataclasses.replace(server, memory=strategy.begin(server))
    strategy.combine(server, make_delivery(server))
    assert server.module[1].num_batches_tracked == 0


@pytest.mark.parametrize("images", [0, 2])
def test_feddf_without_images_of_the_servers_own_says_where_to_get_them(images):
    with pytest.raises(BadInput, match=r"set data\.auxiliary above 0"):
        FedDF().begin(make_server(own=make_images(40)[:images]))


def test_a_federation_without_auxiliary_images_is_refused_before_it_trains(engine):
    split = dataclasses.replace(make_split(), auxiliary=np.arange(0))
    with pytest.raises(BadInput, match=r"set data\.auxiliary above 0"):
        run(FedDF(), engine, split=split)


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


def test_crowding_falls_with_the_distance_that_different_noise_makes():
    noise, latent = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)), normal(5, 4)
    e, z = noise.numpy(), latent.numpy()
    mean = np.mean(
        [np.mean((e[i] - e[j]) ** 2) * np.mean(abs(z[i] - z[j])) for i in range(5) for j in range(5)]
    )
    assert crowding(noise, latent).item() == pytest.approx(np.exp(-mean), rel=1e-5)
    assert crowding(noise, latent[:1].expand(5, -1)) == 1


def test_clients_learn_made_up_labels_and_to_answer_as_to_made_up_features():
    real, made_up = normal(3, 4).requires_grad_(), normal(8, 4, seed=1).requires_grad_()
    drawn = torch.tensor([0, 3, 3, 1, 2])
    p, q = (softmax(logits.detach().numpy()) for logits in (real, made_up))
    expected = -np.log(q[3:][range(5), drawn]).mean() + (q[:3] * np.log(q[:3] / p)).sum(1).mean()
    loss = recalled(real, made_up, drawn)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert not made_up.grad[:3].any()  # what was made up for the batch is a target
    assert made_up.grad[3:].any()
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
    given = []

    def listen(*, objective=None, steer=None):
        given.append(objective)
        return torch.zeros(1)

    strategy.train(
        Visit(model, Layout.of(model), read_vector(model), images, RECIPE, payload, {}, listen, seed=0)
    )
    logits = model(images.x)
    hidden = (first.weight[:, 2:].T + first.bias - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    latent = hidden.clamp(min=0) @ second.weight.T + second.bias
    q = softmax((latent @ model[-1].weight.T + model[-1].bias).detach().numpy())
    p, own = softmax(logits.detach().numpy()), q[images.y]
    expected = -np.log(np.diag(q)).mean() + (own * np.log(own / p)).sum(1).mean()
    assert given[0](model, logits, images.y).item() == pytest.approx(3 * expected, rel=0.02)


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


@BOTH
def test_the_numbers_do_not_depend_on_workers_nor_fail_where_clients_vanish(strategy):
    entries = {"split": make_split(UNEQUAL), "fraction": 0.7, "channel": Plain(dropout=0.3)}
    runs = []
    for workers in (1, 2):
        with Engine(workers) as running:
            runs.append(run(strategy, running, **entries))
    assert torch.equal(runs[0].vector, runs[1].vector)
    assert runs[0].rounds == runs[1].rounds
    with Engine(1) as running:
        assert not torch.equal(runs[0].vector, run(FedAvg(), running, **entries).vector)
    assert runs[0].vector.isfinite().all()


@BOTH
def test_an_interrupted_run_ends_with_the_same_numbers(strategy, engine, tmp_path):
    entries = {"split": make_split(UNEQUAL), "fraction": 0.7, "channel": Plain(dropout=0.3)}
    whole = run(strategy, engine, rounds=4, **entries)
    run(strategy, engine, rounds=2, record=Record(tmp_path), **entries)
    resumed = run(strategy, engine, rounds=4, record=Record(tmp_path), **entries)
    assert torch.equal(resumed.vector, whole.vector)
    assert not torch.equal(whole.vector, run(FedAvg(), engine, rounds=4, **entries).vector)
    assert resumed.memory.keys() == whole.memory.keys()
    assert all(torch.equal(resumed.memory[name], whole.memory[name]) for name in whole.memory)


@BOTH
def test_both_learn(strategy, engine):
    history = run(strategy, engine, rounds=6, split=make_split((40, 40, 40)))
    assert history.rounds[-1].acc_global > 0.9


@BOTH
@pytest.mark.parametrize("channel", [Secure(), Ideal()])
def test_channels_that_hide_single_updates_are_refused(strategy, channel, engine):
    with pytest.raises(BadInput, match="looks at every client's update"):
        run(strategy, engine, channel=channel)


@pytest.mark.parametrize(
    "spec",
    [
        "feddf(steps=-1)",
        "feddf(patience=0)",
        "feddf(batch_size=1)",
        "feddf(lr=0)",
        "feddf(lr='fast')",
        "feddf(validation=0)",
        "feddf(validation=1)",
        "fedgen(noise=0)",
        "fedgen(hidden=1.5)",
        "fedgen(generator_steps=0)",
        "fedgen(batch_size=1)",
        "fedgen(generator_lr=-1)",
        "fedgen(weight_decay=-0.1)",
        "fedgen(decay=0)",
        "fedgen(decay=1.5)",
        "fedgen(weight=-1)",
        "fedgen(diversity=-1)",
    ],
)
def test_impossible_options_are_refused(spec):
    with pytest.raises(BadInput, match="is out of range; it must be"):
        STRATEGIES.make(spec)


def test_both_go_by_their_names():
    assert STRATEGIES.make("feddf") == FedDF()
    assert STRATEGIES.make("fedgen(weight=5.0)") == FedGEN(weight=5.0)
