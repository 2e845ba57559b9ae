import json

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'")

from flare_parts import CLASSES, RECIPE, SEED, SHAPE, LeavingClient, Network, made_split
from flare_runs import job_of, run
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg
from safetensors.torch import load_file

from glasshouse.errors import BadInput
from glasshouse.federation.federation import Federation
from glasshouse.federation.secagg.messages import Keys, Masked, Request, Revealed, Terms
from glasshouse.federation.secagg.ring import Ring
from glasshouse.federation.secagg.server import Server
from glasshouse.integrations.flare import MaskUpdates, RecordRounds, SecureSum
from glasshouse.integrations.flare.wire import packed, unpacked
from glasshouse.learning.layout import Layout

pytestmark = pytest.mark.extras
LAYOUT = Layout.of(Network())


@pytest.fixture(scope="module")
def summed(tmp_path_factory):
    """One round of four clients, of which one has a broken result and another leaves: record and log."""
    summing = SecureSum(threshold=0.6)
    job = job_of(FedAvg(num_clients=4, num_rounds=1, aggregator=summing))
    job.to_clients(LeavingClient())
    job.to_server(
        RecordRounds(
            model="flare_parts:Network",
            shape=SHAPE,
            classes=CLASSES,
            channel="sum",
            kind="delta",
            described=summing.described,
        )
    )
    with pytest.MonkeyPatch.context() as patching:
        folder, log = run(job, tmp_path_factory.mktemp("summed"), 4, patching)
    return folder / "record", log


def test_the_masked_sum_is_that_of_those_who_stayed_to_the_quantisation_step(summed, engine):
    folder = summed[0] / "rounds" / "0001"
    federation = Federation(Network(), made_split(), RECIPE, engine=engine, seed=SEED)
    sent = load_file(folder / "sent.safetensors")
    vector = torch.cat([sent[name].reshape(-1) for name in LAYOUT.names])
    expected = federation.exchange(vector, [0, 1], 0).delivery
    mean = load_file(folder / "sum.safetensors")
    found = torch.cat([mean[name].reshape(-1) for name in LAYOUT.names])
    assert float((found - expected.mean).abs().max()) <= 2 * 16 / 2**22 * 30 / 50 + 1e-6
    told = json.loads((folder / "round.json").read_text())
    assert {client["name"]: client["samples"] for client in told["clients"]} == {"site-1": 30, "site-2": 20}
    assert told["sum"]["samples"] == 50


def test_no_single_update_is_recorded_or_sent(summed):
    assert not list(summed[0].rglob("update-*"))
    assert json.loads((summed[0] / "federation.json").read_text())["channel"] == "sum"


def test_a_broken_result_stays_at_home_and_its_client_is_named(summed):
    assert "client site-4 sends nothing of its result: 1.bias holds NaN or infinite values" in summed[1]


def test_a_client_that_leaves_is_left_out_and_named(summed):
    assert "client site-3 left the sum when asked for its masked" in summed[1]


MESSAGES = [
    Terms(ring=Ring(clip=8.0, bits=22, clients=3), length=5, holders=3, threshold=2, fewest=2, largest=30),
    (Keys(0, b"a", b"b"), Keys(1, b"c", b"d")),
    Request((0, 2), (1,)),
    Revealed(2, {0: b"x", 2: b"y"}, {1: b"z"}),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_arrive_as_they_were_sent(message):
    assert unpacked(packed(message)) == message


def test_masked_vectors_arrive_as_they_were_sent():
    words = np.arange(6, dtype=np.uint32)
    np.testing.assert_array_equal(unpacked(packed(Masked(1, words))).words, words)


@pytest.mark.parametrize("received", [{"message": "Popen"}, {"message": "Keys", "client": 1}, {"other": 1}])
def test_what_is_no_message_is_refused(received):
    with pytest.raises(BadInput, match="message"):
        unpacked(received)


def ask(client, **request):
    return client._answer("", request, None)


def test_an_update_enters_one_sum_and_no_second_one(monkeypatch):
    client = MaskUpdates()
    monkeypatch.setattr(client, "log_error", lambda *what, **how: None)
    client._update = torch.ones(5), 10
    others = [MaskUpdates() for _ in range(2)]
    terms = packed(MESSAGES[0])
    for other in others:
        other._update = torch.ones(5), 30
    everyone = [client, *others]
    keys = [ask(one, asked="keys", number=k, terms=terms)["answer"] for k, one in enumerate(everyone)]
    shared = [unpacked(ask(one, asked="shares", keys=keys)["answer"]) for one in everyone]
    server = Server(MESSAGES[0])
    server.collect(unpacked(keys))
    server.route(shared)
    assert "answer" in ask(client, asked="masked", inbox=packed(server.inbox(0)))
    for request in ({"asked": "keys", "number": 0, "terms": terms}, {"asked": "masked", "inbox": []}):
        assert "did not enter a sum" in ask(client, **request)["refusal"]


def test_terms_for_another_model_are_refused(monkeypatch):
    client = MaskUpdates()
    monkeypatch.setattr(client, "log_error", lambda *what, **how: None)
    client._update = torch.ones(6), 10
    assert "the update has 6" in ask(client, asked="keys", number=0, terms=packed(MESSAGES[0]))["refusal"]


ALONE = Terms(ring=Ring(clip=8.0, bits=22, clients=1), length=5, holders=1, threshold=1, fewest=1, largest=30)


@pytest.mark.parametrize(("terms", "fewest"), [(ALONE, 2), (MESSAGES[0], 3)])
def test_a_client_refuses_a_sum_that_too_few_could_open(terms, fewest, monkeypatch):
    client = MaskUpdates(fewest=fewest)
    monkeypatch.setattr(client, "log_error", lambda *what, **how: None)
    client._update = torch.ones(5), 10
    refusal = ask(client, asked="keys", number=0, terms=packed(terms))["refusal"]
    assert f"{terms.threshold} clients could open the sum, and it asks for {fewest} or more" in refusal
    for odd in (packed(terms) | {"threshold": float("nan")}, packed(terms.ring), {"pairs": []}):
        assert "refusal" in ask(client, asked="keys", number=0, terms=odd)


@pytest.mark.parametrize("fewest", [1, 0, 2.5, True])
def test_a_client_never_sends_an_update_to_a_sum_of_one(fewest):
    with pytest.raises(BadInput, match="fewest"):
        MaskUpdates(fewest=fewest)


def test_an_update_in_the_clear_is_not_summed():
    in_the_clear = FLModel(params={"1.bias": np.zeros(3)}, meta={"client_name": "site-1"})
    with pytest.raises(BadInput, match="site-1 sent its update in the clear; add MaskUpdates"):
        SecureSum().accept_model(in_the_clear)


def test_options_of_the_sum_are_checked_where_the_job_is_made():
    with pytest.raises(BadInput, match="threshold"):
        SecureSum(threshold=0.2)
