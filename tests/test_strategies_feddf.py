import dataclasses

import numpy as np
import pytest
import torch
from conftest import CLASSES, make_images, make_plain_model, make_server, make_split
from teaching import (
    make_delivery,
    make_specialists,
    normal,
    run,
    softmax,
)

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.feddf import FedDF, ensemble_answers
from glasshouse.federation.strategies.strategy import divergence
from glasshouse.learning.evaluate import accuracy
from glasshouse.learning.layout import Layout, read_vector, write_vector


def test_the_students_target_is_the_softmax_of_the_mean_of_the_teachers_logits():
    model, x = make_plain_model(), make_images(9).x
    states = [read_vector(model) + 0.2 * normal(len(read_vector(model)), seed=seed) for seed in range(3)]
    logits = []
    for state in states:
        named = {name: tensor.numpy() for name, tensor in Layout.of(model).named(state).items()}
        hidden = np.maximum(x.flatten(1).numpy() @ named["1.weight"].T + named["1.bias"], 0)
        logits.append(hidden @ named["3.weight"].T + named["3.bias"])
    np.testing.assert_allclose(ensemble_answers(model, states, x), softmax(np.mean(logits, 0)), rtol=1e-4)


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
        scores.append(accuracy(server.module, server.images[memory["validation"]]))
    assert scores[1] >= scores[0]
    if lr == 0.01:
        assert scores[1] > scores[0]


def test_students_that_are_no_better_leave_the_average_as_it_is():
    server, strategy = make_server(), FedDF(steps=20)
    server = dataclasses.replace(server, memory=strategy.begin(server))
    write_vector(server.module, server.vector + make_delivery(server).mean)
    # Labels that the average gets right: no student can be better.
    relabelled = Images(server.images.x, server.module.eval()(server.images.x).argmax(1), CLASSES)
    server = dataclasses.replace(server, images=relabelled)
    vector, _ = strategy.combine(server, make_delivery(server))
    assert torch.equal(vector, server.vector + make_delivery(server).mean)


@pytest.mark.parametrize(("patience", "taken"), [(100, 100), (101, 200), (250, 300)])
def test_distilling_ends_when_patience_has_found_no_better_student(patience, taken):
    student, images = make_plain_model(), make_images(20)
    labelled = Images(images.x, student(images.x).argmax(1), CLASSES)
    batches = []
    student.register_forward_hook(lambda network, inputs, logits: batches.append(network.training))
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
    images = {row.numpy().tobytes(): place for place, row in enumerate(server.images.x)}
    for distilled, validating in used:
        first, second = ({images[row.numpy().tobytes()] for row in rows} for rows in (distilled, validating))
        assert first.isdisjoint(second)
        assert first | second == set(range(40))
        assert len(second) == 8
        assert torch.equal(validating, used[0][1])


def test_feddf_looks_at_no_label_but_those_that_validate():
    strategy, server = FedDF(steps=100, batch_size=16, lr=0.01, validation=0.5), make_server()
    memory, delivery = strategy.begin(server), make_specialists(server)
    hidden = torch.full_like(server.images.y, CLASSES - 1)
    hidden[memory["validation"]] = server.images.y[memory["validation"]]
    vectors = []
    for y in (server.images.y, hidden):
        now = dataclasses.replace(server, memory=memory, images=Images(server.images.x, y, CLASSES))
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
        FedDF().begin(make_server(images=make_images(40)[:images]))


def test_a_federation_without_auxiliary_images_is_refused_before_it_trains(engine):
    split = dataclasses.replace(make_split(), auxiliary=np.arange(0))
    with pytest.raises(BadInput, match=r"set data\.auxiliary above 0"):
        run(FedDF(), engine, split=split)
