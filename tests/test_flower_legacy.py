"""Recording and screening in Flower's legacy interface, whose parameters have no names, and its SecAgg+."""

import logging

import numpy as np
import pytest
from conftest import make_plain_model
from safetensors.numpy import load_file

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

import flower_apps  # noqa: E402
from flwr.client import NumPyClient  # noqa: E402
from flwr.client.mod import secaggplus_mod  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.common import ndarrays_to_parameters  # noqa: E402
from flwr.server import LegacyContext, ServerConfig  # noqa: E402
from flwr.server.strategy import FedAvg, FedMedian  # noqa: E402
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow  # noqa: E402

from glasshouse import BadInput  # noqa: E402
from glasshouse.integrations.flower import record, screen  # noqa: E402
from glasshouse.recording.reader import read_recording  # noqa: E402

NODES = [701, 702, 703]
SAMPLES = [10, 20, 30]


@pytest.fixture(autouse=True)
def _as_a_task(monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with flower_apps.identity():
        yield


class Adds(NumPyClient):
    """Adds its number to each weight; spoils the first with `spoilt` where that is given."""

    def __init__(self, place, spoilt):
        self.place, self.spoilt = place, spoilt

    def fit(self, parameters, config):
        arrays = [array + np.float32(self.place + 1) for array in parameters]
        if self.spoilt is not None and self.place == 1:
            arrays[0] = self.spoilt(arrays[0])
        return arrays, SAMPLES[self.place], {"ward": f"ward {self.place}"}


def play(strategy, *, secure=False, spoilt=None, rounds=2):
    """Run the legacy workflow; returns the parameters after its last round."""
    app = ClientApp(
        client_fn=lambda context: Adds(context.node_config["partition-id"], spoilt).to_client(),
        mods=[secaggplus_mod] if secure else [],
    )
    grid = flower_apps.LocalGrid(app, NODES)
    fit = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2) if secure else None
    context = LegacyContext(
        flower_apps.context(0, 0, 3, {}), config=ServerConfig(num_rounds=rounds), strategy=strategy
    )
    DefaultWorkflow(fit_workflow=fit)(grid, context)
    (arrays,) = context.state.array_records.values()
    return arrays.to_numpy_ndarrays()


def fedavg(kind=FedAvg):
    first = [tensor.numpy() for tensor in make_plain_model().state_dict().values()]
    return kind(fraction_evaluate=0.0, initial_parameters=ndarrays_to_parameters(first))


def recorded(strategy, folder, **options):
    options = {"model": make_plain_model(), "named_by": "ward"} | options
    return record(strategy, folder, shape=(1, 8, 8), classes=4, **options)


@pytest.mark.parametrize("kind", [FedAvg, FedMedian])
def test_a_legacy_strategy_trains_as_before_and_its_parameters_get_the_names_of_the_model(tmp_path, kind):
    plain = play(fedavg(kind))
    seen = play(screen(recorded(fedavg(kind), tmp_path / "record")))
    assert all(np.array_equal(one, other) for one, other in zip(seen, plain, strict=True))
    recording = read_recording(tmp_path / "record")
    assert recording.clients == ("ward 0", "ward 1", "ward 2")
    first, _ = recording.rounds
    model = make_plain_model().state_dict()
    sent = load_file(first.sent)
    assert all(np.array_equal(sent[name], tensor.numpy()) for name, tensor in model.items())
    for place, client in enumerate(first.clients):
        after = load_file(client.file)
        assert client.samples == SAMPLES[place]
        assert all(np.array_equal(after[name], sent[name] + np.float32(place + 1)) for name in model)
    final = load_file(recording.final)
    assert all(np.array_equal(final[name], one) for name, one in zip(model, plain, strict=True))


def test_parameters_of_another_network_are_refused_before_anybody_trains(tmp_path):
    strategy = recorded(fedavg(), tmp_path / "record", model="mlp")
    with pytest.raises(BadInput, match="do not have the shapes of the"):
        play(strategy)


def test_without_a_model_nobody_knows_the_names(tmp_path):
    with pytest.raises(BadInput, match="no names; give the model"):
        recorded(fedavg(), tmp_path / "record", model=None)


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [(lambda array: array * np.nan, "holds NaN"), (lambda array: array[:2], "has shape (2, 64)")],
)
def test_a_result_that_cannot_be_combined_counts_as_a_failure(tmp_path, spoilt, words, caplog):
    strategy = screen(recorded(fedavg(), tmp_path / "record"), named_by="ward")
    arrays = play(strategy, spoilt=spoilt, rounds=1)
    assert "round 1: the reply of client ward 1 is turned away: parameter 0 " + words in caplog.text
    first = [tensor.numpy() for tensor in make_plain_model().state_dict().values()]
    for before, after in zip(first, arrays, strict=True):
        np.testing.assert_allclose(after, before + (1 * 10 + 3 * 30) / 40, rtol=1e-5, atol=1e-5)
    assert read_recording(tmp_path / "record").clients == ("ward 0", "ward 2")


def test_of_secagg_plus_the_opened_mean_is_recorded_and_no_update(tmp_path):
    strategy = recorded(fedavg(), tmp_path / "record", channel="sum")
    arrays = play(strategy, secure=True, rounds=1)
    recording = read_recording(tmp_path / "record")
    assert recording.description.channel == "sum"
    assert recording.description.described == "Flower's SecAgg+"
    (one,) = recording.rounds
    assert {client.name: client.samples for client in one.clients} == {
        f"ward {place}": samples for place, samples in enumerate(SAMPLES)
    }
    assert not any(client.file for client in one.clients)
    sent, mean = load_file(one.sent), load_file(one.sum)
    expected = (1 * 10 + 2 * 20 + 3 * 30) / 60
    for name, combined in zip(make_plain_model().state_dict(), arrays, strict=True):
        # a step of the quantisation, 16 / 2^22, is scaled as the weights are: by 1000 / 60
        np.testing.assert_allclose(mean[name], sent[name] + expected, atol=1e-3)
        np.testing.assert_allclose(mean[name], combined, atol=1e-6)


@pytest.mark.parametrize(("channel", "secure"), [("plain", True), ("sum", False)])
def test_a_channel_that_is_not_the_one_of_the_updates_ends_the_first_round(tmp_path, channel, secure):
    with pytest.raises(BadInput, match="channel"):
        play(recorded(fedavg(), tmp_path / "record", channel=channel), secure=secure)
    assert not list((tmp_path / "record" / "rounds").glob("0*"))
