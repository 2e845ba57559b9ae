"""Clients that lie about what they send, through Flower's Message API: the round goes on without them."""

import logging
import random

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

from flower_grid import FIRST, InProcess, adding, stage_of  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from test_flower_secure import (  # noqa: E402
    COUNT,
    SAMPLES,
    arrays,
    bound,
    changes,
    check_mean,
    expected_mean,
    make_grid,
    run,
    start,
)

from glasshouse.integrations.flower import record, screen  # noqa: E402
from glasshouse.integrations.flower.labels import PROTOCOL, REPORT, SUMMED  # noqa: E402
from glasshouse.integrations.flower.masking import secure_mod  # noqa: E402
from glasshouse.integrations.flower.summing import SecureGrid  # noqa: E402
from glasshouse.recording.reader import read_recording  # noqa: E402


@pytest.fixture(autouse=True)
def _log(monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)


def fedavg():
    return FedAvg(fraction_evaluate=0.0)


def own_model(value=np.nan):
    shapes = {name: array.shape for name, array in arrays_of(start()).items()}
    return ArrayRecord({name: Array(np.full(shape, value, "f4")) for name, shape in shapes.items()})


def arrays_of(record):
    return {name: array.numpy() for name, array in record.items()}


def offering(records, places=(0,)):
    """A grid whose clients at `places` say more in the clear after they trained than they should."""

    def changed(place, reply):
        if place in places and stage_of(reply) == "train":
            for name, one in records.items():
                reply.content[name] = one
        return reply

    return SecureGrid(make_grid(changed=changed))


@pytest.mark.parametrize("name", ["arrays", SUMMED, "model"])
def test_no_client_puts_a_model_of_its_own_in_the_place_of_the_mean(name, tmp_path):
    strategy = record(fedavg(), tmp_path / "record", channel="sum")
    check_mean(run(offering({name: own_model()}), strategy), range(COUNT))
    (one,) = read_recording(tmp_path / "record").rounds
    moved = load_file(one.sum)["w"] - load_file(one.sent)["w"]
    assert np.abs(moved - expected_mean(range(COUNT))["w"]).max() <= bound()


LIES = {
    "too many samples": {"metrics": MetricRecord({"num-examples": 1e12})},
    "NaN samples": {"metrics": MetricRecord({"num-examples": float("nan")})},
    "several samples": {"metrics": MetricRecord({"num-examples": [10, 10]})},
    "no samples": {"metrics": MetricRecord({"loss": 0.5})},
    "two numbers of samples": {"more": MetricRecord({"num-examples": 11})},
    "metrics in the place of the model": {"arrays": MetricRecord({"num-examples": 10})},
    "metrics in the place of a report": {REPORT: MetricRecord({"num-examples": 10})},
    "a report that nobody else has": {REPORT: ArrayRecord({"valuation": Array(np.ones(1, "f4"))})},
    "a report of NaN": {REPORT: ArrayRecord({"valuation": Array(np.full(1, np.nan, "f4"))})},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_client_that_lies_in_the_clear_is_left_out_by_its_node_and_the_round_goes_on(lie, tmp_path, caplog):
    strategy = record(fedavg(), tmp_path / "record", channel="sum")
    check_mean(run(offering(LIES[lie]), strategy), range(1, COUNT))
    assert f"node {FIRST}" in caplog.text
    assert "its update is not in the sum" in caplog.text
    (one,) = read_recording(tmp_path / "record").rounds
    assert sorted(client.samples for client in one.clients) == sorted(SAMPLES[1:])


def test_clients_may_be_weighed_by_another_metric():
    mods = [secure_mod(weighted_by="images")]
    apps = [
        adding(change, 1, mods, {"images": samples})
        for change, samples in zip(changes(), SAMPLES, strict=True)
    ]
    strategy = FedAvg(fraction_evaluate=0.0, weighted_by_key="images")
    check_mean(run(SecureGrid(InProcess(apps), weighted_by="images"), strategy), range(COUNT))


def test_a_grid_that_weighs_by_another_metric_says_what_to_do(caplog):
    mods = [secure_mod(weighted_by="images")]
    apps = [adding(change, 1, mods, {"images": 3}) for change in changes()]
    assert len(run(SecureGrid(InProcess(apps))).arrays) == 0
    assert "give SecureGrid and secure_mod the same `weighted_by`" in caplog.text


def summing(place, reply):
    """The client at place 2 of a plain grid says that what it sends is an opened sum."""
    if place == 2:
        reply.content[PROTOCOL] = ConfigRecord({"stage": "opened", "clients": COUNT, "clipped": 0})
    return reply


def test_a_client_that_calls_its_update_a_sum_does_not_end_a_recorded_run(tmp_path, caplog):
    random.seed(0)  # by which Flower chooses the order of its clients
    recorded = run(make_grid(secure=False, changed=summing), record(fedavg(), tmp_path / "record"))
    random.seed(0)
    plain = run(make_grid(secure=False))
    assert all(np.array_equal(array, arrays(plain)[name]) for name, array in arrays(recorded).items())
    assert f"round 1 is recorded without client node-{FIRST + 2}: " in caplog.text
    names = {f"node-{FIRST + place}" for place in range(COUNT)} - {f"node-{FIRST + 2}"}
    assert set(read_recording(tmp_path / "record").clients) == names


def test_a_client_that_calls_its_update_a_sum_is_screened_out(tmp_path, caplog):
    strategy = screen(record(fedavg(), tmp_path / "record"))
    check_mean(run(make_grid(secure=False, changed=summing), strategy), [0, 1, 3, 4, 5])
    assert f"the reply of client node-{FIRST + 2} is turned away: its reply holds" in caplog.text


def test_a_screen_lets_opened_sums_pass():
    check_mean(run(SecureGrid(make_grid()), screen(fedavg())), range(COUNT))
