import json
import re

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("nvflare", reason="NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'")

from flare_parts import (
    CLASSES,
    RECIPE,
    SEED,
    SHAPE,
    SIZES,
    TRAINING,
    Craft,
    Network,
    made_split,
)
from flare_runs import job_of, run
from nvflare.app_common.aggregators.intime_accumulate_model_aggregator import (
    InTimeAccumulateWeightedAggregator,
)
from nvflare.app_common.shareablegenerators.full_model_shareable_generator import (
    FullModelShareableGenerator,
)
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
from nvflare.job_config.defs import FilterType
from recorded_rounds import saved_parts

from glasshouse import audit_record
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import make_setting
from glasshouse.defences import make_defences
from glasshouse.federation.federation import Federation
from glasshouse.integrations.flare import DefendUpdate, RecordRounds, VetModel
from glasshouse.learning.layout import Layout, read_vector

pytestmark = pytest.mark.extras
NETWORK, SITES = "flare_parts:Network", ("site-1", "site-2", "site-3")
LAYOUT = Layout.of(Network())


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patching:
        yield patching


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, patch):
    """Two rounds by FedAvg of three clients that train and one whose results are broken: record and log."""
    job = job_of(FedAvg(num_clients=4, num_rounds=2))
    job.to_server(RecordRounds(model=NETWORK, shape=SHAPE, classes=CLASSES, recipe=TRAINING, seed=SEED))
    folder, log = run(job, tmp_path_factory.mktemp("recorded"), 4, patch)
    return folder / "record", log


@pytest.fixture(scope="module")
def crafted(tmp_path_factory, patch):
    """A job by scatter and gather, whose clients clip their updates; its server sends a crafted model in
    round 2, which they vet: record and log."""
    controller = ScatterAndGather(
        min_clients=3,
        num_rounds=2,
        wait_time_after_min_received=0,
        persistor_id="persistor",
        ignore_result_error=True,  # so that a refusal does not end the job before the others'
    )
    job = job_of(controller, "WEIGHT_DIFF")
    job.to_server(InTimeAccumulateWeightedAggregator(expected_data_kind="WEIGHT_DIFF"), id="aggregator")
    job.to_server(FullModelShareableGenerator(), id="shareable_generator")
    job.to_server(Craft(), filter_type=FilterType.TASK_DATA, tasks=["train"])
    job.to_server(RecordRounds(model=NETWORK, shape=SHAPE, classes=CLASSES, kind="delta"))
    job.to_clients(VetModel(NETWORK, SHAPE, CLASSES, history=1))
    job.to_clients(DefendUpdate("clipping(norm=0.1)", NETWORK, SHAPE, CLASSES))
    folder, log = run(job, tmp_path_factory.mktemp("crafted"), 3, patch)
    return folder / "record", log


def round_of(record, number):
    """What is recorded of a round: the model sent, and by the client's name what it sent, as vectors."""
    folder = record / "rounds" / f"{number:04d}"
    told = json.loads((folder / "round.json").read_text())
    updates = {client["name"]: vector_in(folder / client["file"]) for client in told["clients"]}
    return vector_in(folder / told["sent"]), updates, told


def vector_in(file):
    tensors = load_file(file)
    return torch.cat([tensors[name].reshape(-1) for name in LAYOUT.names])


def exchanged(engine, sent, number, defences="none"):
    """By the client's name, what it sends in Glasshouse's own federation where it gets the model `sent`."""
    federation = Federation(
        Network(), made_split(), RECIPE, engine=engine, defences=make_defences(defences), seed=SEED
    )
    delivery = federation.exchange(sent, range(3), number).delivery
    return {SITES[update.client]: update.delta for update in delivery.updates}, delivery.mean


@pytest.mark.parametrize("number", [1, 2])
def test_flare_and_glasshouse_train_the_same_federation_to_the_same_updates(recorded, engine, number):
    sent, updates, told = round_of(recorded[0], number)
    expected, _ = exchanged(engine, sent, number - 1)
    assert {client["name"]: client["samples"] for client in told["clients"]} == dict(zip(SITES, SIZES))
    for site in SITES:
        assert torch.equal(updates[site] - sent, expected[site])


def test_the_models_of_all_rounds_are_those_of_glasshouse_to_the_order_of_a_sum(recorded, engine):
    model = read_vector(Network())
    for number in (1, 2):
        torch.testing.assert_close(round_of(recorded[0], number)[0], model, rtol=0, atol=1e-6)
        model = model + exchanged(engine, model, number - 1)[1]
    torch.testing.assert_close(vector_in(recorded[0] / "final.safetensors"), model, rtol=0, atol=1e-6)


ATTACKS = ["loss-threshold", "gap", "mia-bad", "gradient-alignment", "source-inference", "label-counts"]


def scored(results):
    """What each attack found, by the adversary and the metric."""
    return {
        (one.adversary, one.attack, one.metric): (one.value, one.low, one.high, one.chance, one.n)
        for one in results.findings
        if one.value is not None and one.attack in ATTACKS and one.adversary != "owner"
    }


def test_an_audit_of_the_record_gives_the_numbers_of_an_audit_of_our_own_federation(recorded, tmp_path):
    split = made_split()
    parts = saved_parts(tmp_path, split, dict(enumerate(SITES)))
    audited = {"attacks": ATTACKS, "defences": [], "central": False, "ladder": False, "curvature": 0}
    setting = make_setting({"audit": audited, "training": {"rounds": 2, "local_test": 0, **TRAINING}})
    quiet = {"workers": 1, "quiet": True}
    own = run_audit(setting, dataset=split, model=Network(), out=tmp_path / "own", **quiet)
    theirs = audit_record(recorded[0], setting, model=Network(), out=tmp_path / "theirs", **parts, **quiet)
    assert len(scored(own)) > 15
    assert scored(theirs) == scored(own)


def test_a_record_says_where_it_comes_from(recorded):
    told = json.loads((recorded[0] / "federation.json").read_text())
    assert told["framework"]["name"] == "nvflare"
    assert told["model"] == {"name": NETWORK, "shape": list(SHAPE), "classes": CLASSES}
    assert (told["channel"], told["strategy"], told["seed"]) == ("plain", "fedavg", SEED)


def test_a_broken_result_is_rejected_with_its_clients_name_and_the_round_completes(recorded):
    record, log = recorded
    assert "rejected client site-4 in round 1: 1.bias holds NaN or infinite values" in log
    assert "rejected client site-4 in round 2: 1.bias has shape (16, 2), in the model (16,)" in log
    assert set(round_of(record, 1)[1]) == set(round_of(record, 2)[1]) == set(SITES)
    assert torch.isfinite(vector_in(record / "final.safetensors")).all()


def test_a_job_carries_no_copy_of_glasshouse(recorded):
    assert not list(recorded[0].parent.rglob("custom/glasshouse"))


def test_clients_send_the_clipped_updates_of_glasshouse(crafted, engine):
    sent, updates, told = round_of(crafted[0], 1)
    expected, _ = exchanged(engine, sent, 0, "clipping(norm=0.1)")
    assert told["kind"] == "delta"
    for site in SITES:
        assert torch.equal(updates[site], expected[site])
        assert float(updates[site][: LAYOUT.trainable].norm()) == pytest.approx(0.1)


def test_a_crafting_server_gets_refusals_with_the_reason_and_no_update(crafted):
    record, log = crafted
    assert [folder.name for folder in (record / "rounds").glob("0*")] == ["0001"]
    why = "refused the model of round 2: staircase in 1"
    refusals = [line for line in log.splitlines() if f" - {why}" in line]
    for site in SITES:
        assert any(f"VetModel - ERROR - [identity={site}" in line for line in refusals)
        assert re.search(f"RecordRounds - .* client {site} {why}", log)
