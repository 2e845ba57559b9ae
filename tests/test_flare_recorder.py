"""FLARE's recorder, one event at a time."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("nvflare", reason="NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'")

from nvflare.apis.dxo import DXO, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.job_config.api import FedJob
from nvflare.job_config.defs import FilterType

from glasshouse.errors import BadInput
from glasshouse.integrations.flare import RecordRounds

pytestmark = pytest.mark.extras


def model(value, size=3):
    return {"weight": np.full(size, value, np.float32)}


class Server:
    """A server that plays the rounds of a job to a recorder."""

    def __init__(self, folder, **options):
        self.recorder = RecordRounds(str(folder / "record"), **options)
        self.panics, self.said = [], []
        self.recorder.log_error = self.recorder.log_warning = lambda context, text, **how: self.said.append(
            text
        )
        self.recorder.system_panic = lambda reason, context: self.panics.append(reason)
        self.fire(EventType.START_RUN)

    def context(self, client="server", **props):
        workspace = SimpleNamespace(get_run_dir=lambda job: "/nowhere")
        context, peer = FLContext(), FLContext()
        peer.set_prop(ReservedKey.IDENTITY_NAME, client)
        context.set_peer_context(peer)
        context.set_prop(ReservedKey.ENGINE, SimpleNamespace(get_workspace=lambda: workspace), private=True)
        for name, value in props.items():
            context.set_prop(name, value, private=True, sticky=False)
        return context

    def fire(self, event, client="server", **props):
        self.recorder.handle_event(event, self.context(client, **props))

    def send(self, number, tensors):
        task = DXO("WEIGHTS", tensors).to_shareable()
        task.set_header(AppConstants.CURRENT_ROUND, number - 1)
        named = {FLContextKey.TASK_NAME: "train", FLContextKey.TASK_DATA: task}
        self.fire(EventType.AFTER_TASK_DATA_FILTER, **named)

    def receive(self, client, tensors, steps=10):
        """A result; returns what the aggregator gets."""
        result = DXO("WEIGHTS", tensors, {"NUM_STEPS_CURRENT_ROUND": steps}).to_shareable()
        passed = self.recorder.process(result, self.context(client))
        taken = {AppConstants.TRAINING_RESULT: passed, AppConstants.AGGREGATION_ACCEPTED: True}
        arrived = from_shareable(passed).data
        if arrived:
            self.fire(AppEventType.AFTER_CONTRIBUTION_ACCEPT, client, **taken)
        return arrived

    def aggregate(self, mean):
        self.fire(AppEventType.BEFORE_AGGREGATION)
        aggregated = FLModel(params_type=ParamsType.FULL, params=mean)
        self.fire(AppEventType.AFTER_AGGREGATION, **{AppConstants.AGGREGATION_RESULT: aggregated})

    def end(self):
        self.fire(EventType.END_RUN)


def told(folder, number):
    return json.loads((folder / "record" / "rounds" / f"{number:04d}" / "round.json").read_text())


def play(server, rounds, step=1.0):
    for number in range(1, rounds + 1):
        server.send(number, model(step * (number - 1)))
        for client in ("a", "b"):
            server.receive(client, model(number))
        server.aggregate(model(number))
    server.end()


def test_rounds_are_recorded_as_they_are_aggregated_and_the_mean_of_the_last_is_the_final_model(tmp_path):
    play(Server(tmp_path), 2)
    assert [client["name"] for client in told(tmp_path, 2)["clients"]] == ["a", "b"]
    final = load_file(tmp_path / "record" / "final.safetensors")
    np.testing.assert_array_equal(final["weight"], model(2)["weight"])


def test_where_the_server_does_more_than_average_no_final_model_is_made_up(tmp_path):
    server = Server(tmp_path)
    play(server, 2, step=0.5)  # half way to the mean
    assert not (tmp_path / "record" / "final.safetensors").exists()
    assert "another rule than the mean" in server.said[-1]


def test_rounds_that_are_not_due_leave_nothing(tmp_path):
    play(Server(tmp_path, every=2), 3)
    assert sorted(one.name for one in (tmp_path / "record" / "rounds").iterdir()) == ["0001", "0003"]


def test_a_round_that_is_never_aggregated_is_no_round(tmp_path):
    server = Server(tmp_path)
    server.send(1, model(0))
    server.receive("a", model(1))
    server.end()
    assert not list((tmp_path / "record" / "rounds").glob("0*"))


def test_samples_may_be_told_where_clients_report_steps(tmp_path):
    server = Server(tmp_path, samples={"a": 120})
    server.send(1, model(0))
    server.receive("a", model(1), steps=7.5)
    server.receive("b", model(1), steps=80.0)
    server.aggregate(model(1))
    assert {one["name"]: one["samples"] for one in told(tmp_path, 1)["clients"]} == {"a": 120, "b": 80}


def test_recording_that_fails_is_said_once_and_the_job_goes_on_with_its_checks(tmp_path):
    server = Server(tmp_path)
    server.send(1, model(0))
    server.receive("a", model(1), steps=7.5)
    assert "Glasshouse records nothing more of this job: client a weighs 7.5" in server.said[0]
    assert server.receive("b", model(np.nan)) == {}
    assert server.receive("c", model(1)).keys() == {"weight"}
    server.aggregate(model(1))
    server.end()
    assert len(server.said) == 2
    assert not list((tmp_path / "record" / "rounds").glob("0*"))


def test_of_an_encrypted_job_nothing_is_recorded_which_is_said_once(tmp_path):
    server = Server(tmp_path)
    for number in (1, 2):
        server.send(number, model(0))
        encrypted = DXO("WEIGHTS", model(1), {"PROCESSED_ALGORITHM": "_HE_CKKS"}).to_shareable()
        assert server.recorder.process(encrypted, server.context("a")) is encrypted
    server.end()
    (said,) = server.said
    assert "encrypted or quantised by '_HE_CKKS'" in said
    assert not (tmp_path / "record" / "rounds").exists() or not list((tmp_path / "record/rounds").glob("0*"))


def test_a_folder_that_holds_something_else_stops_the_recording_and_nothing_else(tmp_path):
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "thesis.txt").write_text("mine")
    server = Server(tmp_path)
    assert "is not empty and holds no record" in server.said[0]
    play(server, 1)
    assert [one.name for one in (tmp_path / "record").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("tensors", "steps", "why"),
    [
        (model(1), "many", "NUM_STEPS_CURRENT_ROUND = 'many' is no number"),
        (model(1), -1, "it weighs -1.0"),
        ({"weight": ["one", "two", "three"]}, 10, "not numbers"),
        ({"weight": [[1.0], [1.0, 2.0]]}, 10, "is no array"),
        ({}, 10, "it holds no tensor"),
    ],
)
def test_a_client_that_sends_nonsense_is_rejected_and_the_others_are_recorded(tmp_path, tensors, steps, why):
    server = Server(tmp_path)
    server.send(1, model(0))
    assert server.receive("mallory", tensors, steps) == {}
    server.receive("b", model(1))
    server.aggregate(model(1))
    assert "rejected client mallory in round 1: " in server.said[0]
    assert why in server.said[0]
    assert [one["name"] for one in told(tmp_path, 1)["clients"]] == ["b"]


def test_a_job_of_which_every_result_is_rejected_ends_with_the_reasons(tmp_path):
    server = Server(tmp_path)
    server.send(1, model(0))
    server.receive("a", model(np.nan))
    server.receive("b", model(1, size=4))
    server.fire(AppEventType.BEFORE_AGGREGATION)
    (reason,) = server.panics
    assert "a: weight holds NaN" in reason
    assert "b: weight has shape (4,), in the model (3,)" in reason


def test_a_recorder_takes_its_own_place_in_a_job_and_no_other():
    job = FedJob(name="some")
    job.to_server(RecordRounds(), filter_type=FilterType.TASK_RESULT, tasks=None)  # as recipes do
    assert job.job.app_packages == ["glasshouse"]
    with pytest.raises(BadInput, match="RecordRounds looks at each TASK_RESULT, not at each TASK_DATA"):
        job.to_server(RecordRounds(), filter_type=FilterType.TASK_DATA)


def test_a_sum_alone_is_recorded_where_that_is_what_the_server_shall_see(tmp_path):
    play(Server(tmp_path, channel="sum"), 1)
    assert {one["file"] for one in told(tmp_path, 1)["clients"]} == {None}
    assert told(tmp_path, 1)["sum"] == {"file": "sum.safetensors", "samples": 20}
