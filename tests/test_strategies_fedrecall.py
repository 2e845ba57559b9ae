import torch
from conftest import CLASSES, make_model, make_plain_model, make_server, make_split

from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.recalling import FedRecall
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe

SMALL = {"noise": 6, "hidden": 12, "generator_steps": 5, "batch_size": 8}


def run(strategy, engine, *, rounds=3, channel=None, record=None):
    model = make_plain_model()
    federation = Federation(
        model,
        make_split((30, 20, 10, 14)),
        Recipe(epochs=1, batch_size=8, lr=0.1),
        engine=engine,
        strategy=strategy,
        channel=channel,
        seed=3,
    )
    return federation.run(read_vector(model), Plan(rounds=rounds, fraction=0.5), record=record)


def test_its_only_teacher_is_the_last_layer_of_the_average():
    server = make_server()
    delivery = Delivery(torch.full_like(server.vector, 0.01), 60, (0, 1, 2))
    known = FedRecall().teachers(server, delivery, server.module[-1])
    average = make_model()
    write_vector(average, server.vector + 0.01)
    torch.testing.assert_close(known.weight, average[-1].weight.detach()[None])
    torch.testing.assert_close(known.bias, average[-1].bias.detach()[None])
    latent, labels = torch.rand(5, 16), torch.arange(5) % CLASSES
    expected = torch.nn.functional.cross_entropy(average[-1](latent), labels)
    torch.testing.assert_close(known.loss(latent, labels), expected.detach())


def test_without_weight_it_is_fedavg(engine):
    recalling, plain = (run(s, engine).vector for s in (FedRecall(weight=0.0, **SMALL), FedAvg()))
    assert torch.equal(recalling, plain)


def test_the_first_round_is_fedavg_and_the_second_is_not(engine):
    for rounds, same in ((1, True), (2, False)):
        recalling, plain = (run(s, engine, rounds=rounds).vector for s in (FedRecall(**SMALL), FedAvg()))
        assert torch.equal(recalling, plain) is same


def test_clients_tell_nothing_and_the_sum_is_enough(engine):
    shown, masked = (run(FedRecall(**SMALL), engine, channel=channel) for channel in (None, Secure()))
    torch.testing.assert_close(masked.vector, shown.vector, atol=1e-3, rtol=0)
    model = 4 * len(shown.vector)
    assert [row.up for row in shown.rounds] == [model] * 3
    assert shown.rounds[1].down == model + 4 * len(shown.memory["generator"]) + 4


def test_it_resumes_with_the_same_numbers(engine, tmp_path):
    whole = run(FedRecall(**SMALL), engine, rounds=4).vector
    run(FedRecall(**SMALL), engine, rounds=2, record=Record(tmp_path))
    assert torch.equal(run(FedRecall(**SMALL), engine, rounds=4, record=Record(tmp_path)).vector, whole)


def test_it_goes_by_its_name():
    assert STRATEGIES.make("fedrecall(weight=5.0)") == FedRecall(weight=5.0)
