"""What a Flower app's server sees is recorded, screened, and audited like a federation of our own."""

import logging

import numpy as np
import pytest
import torch
from conftest import make_model, make_split
from recorded_rounds import RECIPE, saved_parts
from safetensors.numpy import load_file
from test_recorded_audit import ROUNDS, WATCHING, numbers, setting

from glasshouse import BadInput, audit_record
from glasshouse.auditing.run import run_audit
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive
from glasshouse.recording.reader import read_recording

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

import flower_apps  # noqa: E402
from flwr.app import Array, ArrayRecord  # noqa: E402
from flwr.serverapp.strategy import (  # noqa: E402
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    Krum,
)

from glasshouse.integrations.flower import record, screen  # noqa: E402

NODES = [701, 702, 703]


@pytest.fixture(autouse=True)
def _as_a_task():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are tiny
    with flower_apps.identity():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def split():
    return make_split()


def play(split, strategy, *, rounds=2, spoil=None, seed=0, **recipe):
    """Run a strategy on clients in this process; returns Flower's result."""
    app = flower_apps.client_app(split, Recipe(**RECIPE | recipe), seed)
    grid = flower_apps.LocalGrid(app, NODES, *([] if spoil is None else [spoil]))
    return strategy.start(grid, flower_apps.first_arrays(), num_rounds=rounds)


def fedavg(**options):
    return FedAvg(fraction_evaluate=0.0, **options)


def recorded(strategy, folder, **options):
    return record(strategy, folder, shape=(1, 8, 8), classes=4, recipe=RECIPE, **options)


STRATEGIES = {
    "FedAvg": fedavg,
    "FedAdam": lambda: FedAdam(fraction_evaluate=0.0),
    "FedMedian": lambda: FedMedian(fraction_evaluate=0.0),
    "Krum": lambda: Krum(fraction_evaluate=0.0),
    "a wrapper": lambda: DifferentialPrivacyServerSideFixedClipping(fedavg(), 0.0, 1.0, 3),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_recording_and_screening_leave_the_training_as_it_is(split, tmp_path, name):
    plain = play(split, STRATEGIES[name]())
    seen = play(split, screen(recorded(STRATEGIES[name](), tmp_path / "record")))
    assert torch.equal(flower_apps.as_vector(seen.arrays), flower_apps.as_vector(plain.arrays))
    assert len(read_recording(tmp_path / "record").rounds) == 2


def test_a_strategy_that_overrides_its_start_is_recorded_and_stays_what_it_was(split, tmp_path):
    class Own(FedAvg):
        def start(self, grid, initial_arrays, num_rounds):
            self.began = True
            return super().start(grid, initial_arrays, num_rounds=1)

    strategy = Own(fraction_evaluate=0.0)
    seen = recorded(strategy, tmp_path / "record")
    play(split, seen)
    assert isinstance(seen, Own)
    assert seen.began
    assert type(strategy) is Own
    assert not hasattr(strategy, "began")
    assert len(read_recording(tmp_path / "record").rounds) == 1


def test_the_record_holds_what_was_sent_and_what_each_client_replied_in_their_order(split, tmp_path):
    play(split, recorded(fedavg(), tmp_path / "record", named_by="name"), rounds=1)
    recording = read_recording(tmp_path / "record")
    assert recording.description.framework[0] == "flwr"
    assert recording.description.strategy == "fedavg"
    (one,) = recording.rounds
    assert [client.name for client in one.clients] == ["ward 0", "ward 1", "ward 2"]
    assert [client.samples for client in one.clients] == [len(held) for held in split.clients]
    sent, first = load_file(one.sent), make_model().state_dict()
    assert all(np.array_equal(sent[name], tensor.numpy()) for name, tensor in first.items())
    for place, client in enumerate(one.clients):
        images = split.pool[split.clients[place]]
        after = flower_apps.trained(first, images, Recipe(**RECIPE), 0, place, 0)
        held = load_file(client.file)
        assert all(np.array_equal(held[name], tensor.numpy()) for name, tensor in after.items())


def test_clients_that_do_not_say_their_name_go_by_their_node(split, tmp_path):
    play(split, recorded(fedavg(), tmp_path / "record"), rounds=1)
    assert read_recording(tmp_path / "record").clients == tuple(f"node-{node}" for node in NODES)


def test_a_name_belongs_to_the_node_that_gave_it_first(split, tmp_path):
    def impostor(node, number, reply):
        reply.content["client"]["name"] = "ward 0" if node != 703 else "node-701"
        return reply

    play(split, recorded(fedavg(), tmp_path / "record", named_by="name"), rounds=1, spoil=impostor)
    assert read_recording(tmp_path / "record").clients == ("ward 0", "node-702", "node-703")


def test_every_second_round_and_the_updates_of_one_client_alone(split, tmp_path):
    play(split, recorded(fedavg(), tmp_path / "record", every=2, clients=1), rounds=3)
    rounds = read_recording(tmp_path / "record").rounds
    assert [one.number for one in rounds] == [1, 3]
    assert [client.file is not None for client in rounds[0].clients] == [True, False, False]
    assert rounds[0].sum is not None


def weight_name(reply):
    return next(name for name, array in reply.content["arrays"].items() if len(array.shape) == 4)


def put(reply, change):
    arrays = reply.content["arrays"]
    name = weight_name(reply)
    arrays[name] = Array(change(arrays[name].numpy().copy()))


def spoil_nan(reply):
    def change(array):
        array.flat[0] = np.nan
        return array

    put(reply, change)


def spoil_garbage(reply):
    arrays = reply.content["arrays"]
    name = weight_name(reply)
    arrays[name] = Array("float32", arrays[name].shape, "numpy.ndarray", b"not an array")


def set_weight(value):
    return lambda reply: reply.content["metrics"].update({"num-examples": value})


SPOILT = {
    "NaN": (spoil_nan, "holds NaN"),
    "infinity": (lambda reply: put(reply, lambda array: array / np.float32(0)), "holds NaN or infinite"),
    "a wrong shape": (lambda reply: put(reply, lambda array: array[:1]), "has shape"),
    "a tensor too few": (lambda reply: reply.content["arrays"].pop(weight_name(reply)), "is missing"),
    "another name": (
        lambda reply: reply.content["arrays"].update({"more": Array(np.zeros(1))}),
        "no part of the model",
    ),
    "no array at all": (spoil_garbage, "cannot be read"),
    "negative weight": (set_weight(-5), "it weighs -5"),
    "NaN as weight": (set_weight(float("nan")), "it weighs nan"),
    "several weights": (set_weight([1, 2]), "metrics"),
    "another metric": (lambda reply: reply.content["metrics"].update({"loss": 1.0}), "metrics"),
    "no metrics": (lambda reply: reply.content.pop("metrics"), "one record of arrays and one of metrics"),
}


@pytest.fixture
def without_702(split):
    """The model after a round in which that node did not answer."""
    result = play(split, fedavg(), rounds=1, spoil=lambda node, number, reply: None if node == 702 else reply)
    return flower_apps.as_vector(result.arrays)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("kind", SPOILT)
def test_a_reply_that_cannot_be_combined_is_turned_away_by_name_and_the_round_completes(
    split, tmp_path, kind, caplog, without_702
):
    damage, words = SPOILT[kind]

    def spoil(node, number, reply):
        if node == 702:
            damage(reply)
        return reply

    logging.getLogger("flwr").propagate = True
    strategy = screen(recorded(fedavg(), tmp_path / "record", named_by="name"), named_by="name")
    result = play(split, strategy, rounds=1, spoil=spoil)
    assert "round 1: the reply of client ward 1 is turned away: " in caplog.text
    assert words in caplog.text
    assert torch.equal(flower_apps.as_vector(result.arrays), without_702)
    recording = read_recording(tmp_path / "record")
    assert recording.clients == ("ward 0", "ward 2")
    assert [one.number for one in recording.rounds] == [1]


def test_without_a_screen_the_record_leaves_out_what_is_none_of_its_model(split, tmp_path, caplog):
    def spoil(node, number, reply):
        if node == 702:
            reply.content["arrays"].update({"more": Array(np.zeros(1))})
        return reply

    logging.getLogger("flwr").propagate = True
    strategy = recorded(FedAvgOfSome(fraction_evaluate=0.0), tmp_path / "record")
    play(split, strategy, rounds=1, spoil=spoil)
    assert "round 1 is recorded without client node-702" in caplog.text
    assert read_recording(tmp_path / "record").clients == ("node-701", "node-703")


class FedAvgOfSome(FedAvg):
    """Combines the replies that have as many arrays as most."""

    def aggregate_train(self, server_round, replies):
        replies = [reply for reply in replies if "more" not in reply.content["arrays"]]
        return super().aggregate_train(server_round, replies)


def test_another_run_does_not_go_on_in_the_record_of_the_first(split, tmp_path):
    play(split, recorded(fedavg(), tmp_path / "record"), rounds=2)
    before = {file: file.read_bytes() for file in (tmp_path / "record").rglob("*") if file.is_file()}
    other = flower_apps.LocalGrid(flower_apps.client_app(split, Recipe(**RECIPE)), NODES)
    with pytest.raises(BadInput, match="holds round 1 of another run"):
        recorded(fedavg(), tmp_path / "record").start(other, ArrayRecord(make_model(1).state_dict()))
    assert all(file.read_bytes() == content for file, content in before.items())
    play(split, recorded(fedavg(), tmp_path / "record"), rounds=3)
    assert [one.number for one in read_recording(tmp_path / "record").rounds] == [1, 2, 3]


def test_a_disk_that_fails_costs_the_record_and_not_the_training(split, tmp_path, caplog, monkeypatch):
    from glasshouse.errors import Fault
    from glasshouse.recording.writer import Seen

    def full(*_):
        raise Fault("the disk is full; free some space")

    logging.getLogger("flwr").propagate = True
    strategy = recorded(fedavg(), tmp_path / "record")
    monkeypatch.setattr(Seen, "_write", full)
    seen = play(split, strategy, rounds=1)
    plain = play(split, fedavg(), rounds=1)
    assert torch.equal(flower_apps.as_vector(seen.arrays), flower_apps.as_vector(plain.arrays))
    assert "round 1 is not recorded: the disk is full" in caplog.text


def test_arrays_without_names_get_those_of_the_model(split, tmp_path):
    strategy = record(fedavg(), tmp_path / "record", model=make_model(), shape=(1, 8, 8), classes=4)
    app = flower_apps.client_app(split, Recipe(**RECIPE))

    def nameless(node, number, reply):
        arrays = reply.content["arrays"].to_numpy_ndarrays()
        reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    grid = flower_apps.LocalGrid(app, NODES, nameless)
    first = ArrayRecord([tensor.numpy() for tensor in make_model().state_dict().values()])
    strategy.start(grid, first, num_rounds=1)
    (one,) = read_recording(tmp_path / "record").rounds
    assert load_file(one.sent).keys() == make_model().state_dict().keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recipe": {"speed": 1}}, "speed"),
        ({"every": 0}, "every"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_the_training(tmp_path, options, words):
    with pytest.raises(BadInput, match=words):
        record(fedavg(), tmp_path / "record", **options)


def test_single_updates_are_no_record_of_sums(split, tmp_path):
    with pytest.raises(BadInput, match="leave the channel"):
        play(split, recorded(fedavg(), tmp_path / "record", channel="sum"))


def test_only_strategies_are_recorded_and_each_once(tmp_path):
    with pytest.raises(BadInput, match="no strategy of Flower"):
        record(object(), tmp_path / "record")
    with pytest.raises(BadInput, match="recorded already"):
        record(record(fedavg(), tmp_path / "one"), tmp_path / "two")


def test_the_same_federation_run_by_flower_gives_the_same_audit(split, tmp_path):
    seed = derive(0, "federation")
    strategy = record(
        fedavg(), tmp_path / "record", shape=(1, 8, 8), classes=4, recipe=RECIPE, named_by="name", seed=seed
    )
    play(split, strategy, rounds=ROUNDS, seed=seed)
    parts = saved_parts(tmp_path, split, names=[f"ward {client}" for client in range(3)])
    options = {"workers": 1, "quiet": True, "model": make_model()}
    found = audit_record(tmp_path / "record", setting(), out=tmp_path / "theirs", **options, **parts)
    own = run_audit(setting(), dataset=split, out=tmp_path / "own", **options)
    theirs, ours = (numbers(run.findings, whose=WATCHING) for run in (found, own))
    assert theirs.keys() == ours.keys()
    assert len(ours) > 15
    for key, values in ours.items():
        # Flower averages weights, Glasshouse their changes: the same up to float32
        pairs = [(one, other) for one, other in zip(theirs[key], values) if (one, other) != (None, None)]
        assert all(one == pytest.approx(other, rel=1e-3, abs=1e-4) for one, other in pairs), key


@pytest.mark.slow
def test_the_simulation_runtime_leaves_the_same_record_as_a_grid_in_this_process(split, tmp_path):
    ray = pytest.importorskip("ray", reason="Flower simulates on Ray")
    ray.shutdown()  # one that another test left would not know where the app lies
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    play(split, recorded(fedavg(), tmp_path / "here", named_by="name"), rounds=2)
    server = ServerApp()

    @server.main()
    def main(grid, context):
        strategy = in_order(recorded(fedavg(), tmp_path / "there", named_by="name"))
        strategy.start(grid, flower_apps.first_arrays(), num_rounds=2)

    run_simulation(
        server_app=server,
        client_app=flower_apps.client_app(split, Recipe(**RECIPE)),
        num_supernodes=3,
        backend_config={"client_resources": {"num_cpus": 2, "num_gpus": 0.0}},
    )
    here, there = (read_recording(tmp_path / name) for name in ("here", "there"))
    assert there.clients == here.clients
    for one, other in zip(here.rounds, there.rounds, strict=True):
        for file, its in zip(one.files, other.files, strict=True):
            ours, theirs = load_file(file), load_file(its)
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours), file


def in_order(strategy):
    """The strategy, which gets replies in the order of their clients, not in that of their arrival."""
    kind = type(strategy)

    class InOrder(kind):
        def aggregate_train(self, server_round, replies):
            ordered = sorted(replies, key=lambda reply: reply.content["client"]["name"])
            return super().aggregate_train(server_round, ordered)

    strategy.__class__ = InOrder
    return strategy
