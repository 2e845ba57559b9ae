"""Secure aggregation on Flower's Message API: sums are right, updates hidden, drop-outs survived."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

from flower_grid import FIRST, InProcess, adding, stage_of  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAdam, FedAvg  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from secagg_rounds import looks_uniform  # noqa: E402

from glasshouse.errors import BadInput  # noqa: E402
from glasshouse.integrations.flower import record  # noqa: E402
from glasshouse.integrations.flower.labels import PROTOCOL, WORDS  # noqa: E402
from glasshouse.integrations.flower.masking import secure_mod  # noqa: E402
from glasshouse.integrations.flower.mods import defence_mod  # noqa: E402
from glasshouse.integrations.flower.summing import SecureGrid  # noqa: E402
from glasshouse.recording.reader import read_recording  # noqa: E402

COUNT = 6
SAMPLES = [10, 250, 40, 3, 77, 120]
STEP = 2 * 8.0 / 2**22
STAGES = ["train", "advertise", "share", "mask", "reveal"]


def changes(seed=0):
    rng = np.random.default_rng(seed)
    return [
        {"w": rng.normal(size=(20, 30)).astype("f4"), "b": rng.normal(size=30).astype("f4")}
        for _ in range(COUNT)
    ]


def start():
    rng = np.random.default_rng(9)
    return ArrayRecord(
        {
            "w": Array(rng.normal(size=(20, 30)).astype("f4")),
            "b": Array(rng.normal(size=30).astype("f4")),
            "count": Array(np.array(7)),
        }
    )


def make_grid(mods=(), secure=True, first=None, **options):
    """Six clients with different updates and samples; `first` are mods around all others."""
    around = [secure_mod()] if secure and first is None else list(first or ())
    return InProcess(
        [
            adding(change, samples, [*around, *mods])
            for change, samples in zip(changes(), SAMPLES, strict=True)
        ],
        **options,
    )


def run(grid, strategy=None, rounds=1):
    strategy = strategy or FedAvg(fraction_evaluate=0.0)
    return strategy.start(grid, start(), num_rounds=rounds, timeout=30)


def arrays(result):
    return {name: array.numpy() for name, array in result.arrays.items()}


def losing(**places):
    """Messages of a stage that do not reach the clients at some places."""
    return lambda place, message: place in places.get(stage_of(message) or "", ())


def bound(places=range(COUNT)):
    """Each update is rounded by half a step after it was scaled by its samples over the most."""
    return STEP / 2 * max(SAMPLES) * len(list(places)) / sum(SAMPLES[k] for k in places) + 1e-6


def expected_mean(places):
    weight = sum(SAMPLES[k] for k in places)
    return {name: sum(SAMPLES[k] * changes()[k][name] for k in places) / weight for name in ("w", "b")}


def check_mean(result, places):
    before = {name: array.numpy() for name, array in start().items()}
    for name, mean in expected_mean(places).items():
        assert np.abs(arrays(result)[name] - before[name] - mean).max() <= bound(places)


def test_fedavg_over_the_secure_grid_ends_with_the_plain_mean_to_the_quantisation_step():
    plain, secure = run(make_grid(secure=False)), run(SecureGrid(make_grid()))
    for name in ("w", "b"):
        assert np.abs(arrays(plain)[name] - arrays(secure)[name]).max() <= bound()
    assert arrays(secure)["count"] == pytest.approx(7)
    check_mean(secure, range(COUNT))


def test_any_averaging_strategy_and_several_rounds_go_through_it():
    def server():
        return FedAdam(fraction_evaluate=0.0, eta=0.01, tau=0.1)

    plain, secure = run(make_grid(secure=False), server(), 3), run(SecureGrid(make_grid()), server(), 3)
    for name in ("w", "b"):
        np.testing.assert_allclose(arrays(secure)[name], arrays(plain)[name], atol=1e-5)


def test_what_reaches_the_server_of_a_clients_update_is_uniform_words_and_no_other_array():
    grid = make_grid(mods=[])
    grid.apps = [
        adding({"w": np.zeros((20, 30)), "b": np.ones(30)}, 10, [secure_mod()], {"loss": 0.25})
        for _ in grid.apps
    ]
    run(SecureGrid(grid))
    words = [
        reply.content[WORDS]["words"].numpy() for reply in grid.seen if WORDS in reply.content.array_records
    ]
    assert len(words) == COUNT
    assert looks_uniform(np.concatenate(words))
    for reply in grid.seen:
        assert set(reply.content.array_records) <= {WORDS}
        assert all(set(metrics) == {"num-examples"} for metrics in reply.content.metric_records.values())


def test_secrets_stay_in_the_state_of_the_client():
    grid = make_grid()
    run(SecureGrid(grid))
    kept = [context.state[PROTOCOL] for context in grid.contexts]
    said = b"".join(
        value if isinstance(value, bytes) else b"".join(value)
        for reply in grid.seen
        for record in reply.content.config_records.values()
        for value in record.values()
        if isinstance(value, bytes) or (isinstance(value, list) and value and isinstance(value[0], bytes))
    )
    for state in kept:
        for secret in ("secret-masking", "secret-seed", "secret-sealing"):
            assert len(state[secret]) >= 16
            assert state[secret] not in said


@pytest.mark.parametrize("stage", STAGES)
def test_a_drop_out_in_any_stage_is_survived(stage):
    result = run(SecureGrid(make_grid(lost=losing(**{stage: {1}}))))
    in_sum = range(COUNT) if stage == "reveal" else [0, 2, 3, 4, 5]
    check_mean(result, in_sum)


def test_drop_outs_in_all_stages_at_once_are_survived_above_the_threshold():
    lost = losing(train={0}, advertise={1}, mask={1}, reveal={1, 4})
    check_mean(run(SecureGrid(make_grid(lost=lost), threshold=0.51)), [2, 3, 4, 5])


@pytest.mark.parametrize("stage", STAGES[1:])
def test_below_the_threshold_nothing_is_opened_and_the_model_stays(stage):
    result = run(SecureGrid(make_grid(lost=losing(**{stage: {0, 1, 2}}))))
    assert len(result.arrays) == 0  # no round gave a model


def test_the_next_round_goes_on_after_one_that_failed():
    first = []

    def lost(place, message):
        first.append(message.content["glasshouse.secagg"]["session"])
        return place < 3 and stage_of(message) == "mask" and first[-1] == first[0]

    check_mean(run(SecureGrid(make_grid(lost=lost)), rounds=2), range(COUNT))


def test_a_client_that_sends_nan_or_other_shapes_is_left_out_by_its_number(caplog):
    grid = make_grid()
    grid.apps[1] = adding({"w": np.full((20, 30), np.nan)}, 250, [secure_mod()])
    grid.apps[3] = adding({"w": np.zeros((2, 20, 30))}, 3, [secure_mod()])
    check_mean(run(SecureGrid(grid)), [0, 2, 4, 5])
    said = caplog.text
    assert f"node {FIRST + 1}" in said
    assert "NaN" in said
    assert f"node {FIRST + 3}" in said
    assert "has the shape (2, 20, 30) in the reply" in said


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", ["empty", "whole", "infinite", "words", "garbage"])
def test_a_reply_that_cannot_be_read_counts_as_a_drop_out(stage, how):
    def changed(place, reply):
        if place != 2 or stage_of(reply) != stage:
            return reply
        if how == "empty":
            reply.content = RecordDict()
        elif how in ("whole", "infinite"):
            record = reply.content[PROTOCOL]
            kept = {key: record[key] for key in ("stage", "session")}
            other = 3 if how == "whole" else float("inf")
            reply.content[PROTOCOL] = ConfigRecord(dict.fromkeys(record, other) | kept)
        elif WORDS in reply.content:
            broken = Array("uint32", (631,), "numpy.ndarray", b"")
            words = Array(np.zeros(3, np.float64)) if how == "words" else broken
            reply.content[WORDS] = ArrayRecord({"words": words})
        return reply

    result = run(SecureGrid(make_grid(changed=changed)))
    # Words are in the stage of masks alone, where nothing else is said.
    spared = stage != "mask" if how in ("words", "garbage") else stage == "mask" and how != "empty"
    check_mean(result, range(COUNT) if spared or stage == "reveal" else [0, 1, 3, 4, 5])


def test_a_client_that_sums_securely_trains_for_no_other_grid(caplog):
    grid = make_grid()
    assert len(run(grid).arrays) == 0
    assert "it sends updates under masks alone; let the server use SecureGrid" in caplog.text
    assert all(reply.has_error() for reply in grid.seen)


def asked(grid, stage, place=0, **fields):
    """What the client at a place answers to a message of the latest session."""
    session = grid.contexts[place].state[PROTOCOL]["session"]
    said = ConfigRecord({"stage": stage, "session": session, **fields})
    message = Message(RecordDict({PROTOCOL: said}), dst_node_id=FIRST + place, message_type="train")
    (reply,) = grid.send_and_receive([message])
    return reply


def test_a_client_refuses_to_mask_twice_and_to_open_two_sums():
    grid = make_grid()
    run(SecureGrid(grid))
    inbox = {"senders": [], "recipients": [], "texts": [], "commitments": []}
    assert "out of turn" in asked(grid, "mask", **inbox).error.reason
    other = {"survivors": [0, 1, 2, 3, 4], "dropped": [5]}
    assert "another request was answered" in asked(grid, "reveal", **other).error.reason
    assert "are drawn already" in asked(grid, "advertise", name=0).error.reason
    same = {"survivors": list(range(COUNT)), "dropped": []}
    assert asked(grid, "reveal", **same).has_content()


def test_a_client_refuses_a_sum_that_too_few_could_open():
    grid = make_grid(first=[secure_mod(fewest=5)])
    result = run(SecureGrid(grid))  # four of six suffice for the server
    assert len(result.arrays) == 0
    assert any("it asks for 5 or more" in reply.error.reason for reply in grid.seen if reply.has_error())
    check_mean(run(SecureGrid(make_grid(first=[secure_mod(fewest=5)]), threshold=0.8)), range(COUNT))


def test_sparse_neighbours_open_the_same_mean():
    check_mean(run(SecureGrid(make_grid(), neighbours=4)), range(COUNT))


def test_defences_act_on_the_update_before_it_is_masked():
    result = run(SecureGrid(make_grid(mods=[defence_mod("clipping(norm=0.001)")])))
    before = {name: array.numpy() for name, array in start().items()}
    moved = np.concatenate([(arrays(result)[name] - before[name]).ravel() for name in ("w", "b")])
    assert 0 < np.linalg.norm(moved) <= 0.001 + bound() * np.sqrt(moved.size)


def test_metrics_travel_only_where_the_client_says_so():
    grid = InProcess(
        [adding(c, 10, [secure_mod(clear=["loss"])], {"loss": 0.25, "worst": 3.0}) for c in changes()]
    )
    assert dict(run(SecureGrid(grid)).train_metrics_clientapp[1]) == {"loss": pytest.approx(0.25)}


def test_training_must_go_through_send_and_receive():
    message = Message(RecordDict(), dst_node_id=FIRST, message_type="train")
    with pytest.raises(BadInput, match="train through send_and_receive"):
        SecureGrid(make_grid()).push_messages([message])


def test_the_record_of_a_secure_sum_holds_the_mean_and_no_update(tmp_path):
    strategy = record(FedAvg(fraction_evaluate=0.0), tmp_path / "record", channel="sum")
    run(SecureGrid(make_grid(lost=losing(mask={1}))), strategy)
    (one,) = read_recording(tmp_path / "record").rounds
    assert all(client.file is None for client in one.clients)
    assert sorted(client.samples for client in one.clients) == sorted(SAMPLES[:1] + SAMPLES[2:])
    moved = load_file(one.sum)["w"] - load_file(one.sent)["w"]
    assert np.abs(moved - expected_mean([0, 2, 3, 4, 5])["w"]).max() <= bound([0, 2, 3, 4, 5])


def test_sums_are_no_record_of_single_updates(tmp_path):
    with pytest.raises(BadInput, match='record with channel="sum"'):
        run(SecureGrid(make_grid()), record(FedAvg(fraction_evaluate=0.0), tmp_path / "record"))
