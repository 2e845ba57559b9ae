"""The filters of FLARE's clients, one message at a time."""

from copy import deepcopy

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'")

from flare_parts import CLASSES, SHAPE, Craft, Network, broken, made_split, packed
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import ContentBlockedException
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.sec.audit import AuditService

from glasshouse.defences import DEFENCES
from glasshouse.errors import BadInput
from glasshouse.integrations.flare import DefendUpdate, MaskUpdates, VetModel
from glasshouse.integrations.flare.checking import fault_in
from glasshouse.integrations.flare.contents import read_contents
from glasshouse.integrations.flare.defending import of_updates
from glasshouse.integrations.flare.events import REPORTED
from glasshouse.learning.layout import Layout

pytestmark = pytest.mark.extras
NETWORK = "flare_parts:Network"
LAYOUT = Layout.of(Network())


@pytest.mark.parametrize("spec", [name for name in DEFENCES if name not in ("transformation-policy",)])
def test_a_defence_acts_on_a_clients_update_or_is_refused_with_the_reason(spec):
    on_updates = {"gaussian-noise", "laplacian-noise", "pruning", "clipping"}
    if spec in on_updates:
        assert of_updates(spec).defences
    else:
        with pytest.raises(BadInput, match=r"client|server|VetModel"):
            of_updates(spec)


def test_nothing_to_defend_with_is_refused():
    with pytest.raises(BadInput, match="leave the filter out"):
        DefendUpdate("none", NETWORK, SHAPE, CLASSES)


def weights():
    return {name: tensor.numpy() for name, tensor in Network().state_dict().items()}


def test_a_sound_result_has_no_fault_and_others_are_named():
    sent = weights()
    assert fault_in(sent, sent, 5.0) is None
    assert fault_in(broken(sent, 0), sent, 5.0) == "1.bias holds NaN or infinite values"
    assert "shape (16, 2)" in fault_in(broken(sent, 1), sent, 5.0)
    assert "'extra'" in fault_in(sent | {"extra": np.zeros(1)}, sent, 5.0)
    assert fault_in(sent, sent, float("nan")) == "it weighs nan, which must be above 0"
    assert fault_in({}, sent, 5.0) == "it holds no tensor"


@pytest.mark.parametrize("kind", ["after", "delta"])
def test_weights_and_differences_of_weights_turn_into_each_other(kind):
    sent = weights()
    after = {name: array + 1 for name, array in sent.items()}
    delta = {name: np.ones_like(array) for name, array in sent.items()}
    contents = read_contents(packed(after, 5) if kind == "after" else packed(delta, 5, "WEIGHT_DIFF"))
    assert (contents.kind, contents.steps) == (kind, 5)
    for name in LAYOUT.names:
        np.testing.assert_allclose(contents.changed_to("delta", sent)[name], delta[name], atol=1e-6)
        np.testing.assert_allclose(contents.changed_to("after", sent)[name], after[name], atol=1e-6)


def test_what_is_encrypted_or_compressed_is_never_taken_for_weights():
    message = packed(weights(), 5)
    exchange = from_shareable(message)
    exchange.set_meta_prop("PROCESSED_ALGORITHM", "float16")
    with pytest.raises(BadInput, match="'float16'"):
        read_contents(exchange.update_shareable(message))


def test_messages_that_hold_no_model_are_left_alone():
    assert read_contents(DXO("METRICS", {"accuracy": 1.0}).to_shareable()) is None


class Engine:
    """What the components need of FLARE's engine: it takes the events that they fire."""

    def __init__(self):
        self.fired = []

    def fire_event(self, event_type, fl_ctx):
        self.fired.append((event_type, fl_ctx.get_prop(FLContextKey.EVENT_DATA)))


@pytest.fixture
def context():
    context = FLContext()
    context.set_prop(ReservedKey.ENGINE, Engine(), private=True)
    context.set_prop(ReservedKey.IDENTITY_NAME, "site-1")
    return context


def crafted_task():
    task = packed(weights(), 1)
    task.set_header("current_round", 1)
    return Craft().process(task, None)


@pytest.mark.parametrize("tell", [True, False])
def test_a_refusal_goes_into_the_audit_trail_and_the_server_learns_as_much_as_it_should(
    context, tmp_path, tell
):
    AuditService.initialize(str(tmp_path / "audit.log"))
    with pytest.raises(ContentBlockedException, match="staircase in 1"):
        VetModel(NETWORK, SHAPE, CLASSES, tell=tell).process(crafted_task(), context)
    AuditService.close()
    assert "refused the model of round 2: staircase in 1" in (tmp_path / "audit.log").read_text()
    ((event, told),) = context.get_engine().fired
    assert event == REPORTED
    assert ("staircase" in told["what"]) is tell


def test_a_task_of_another_network_or_without_weights_is_refused(context):
    vetting = VetModel(NETWORK, SHAPE, CLASSES)
    others = weights() | {"extra": np.zeros((3, 3), np.float32)}
    for task, why in ((packed(others, 1), "new-layers"), (DXO("METRICS", {}).to_shareable(), "no weights")):
        with pytest.raises(ContentBlockedException, match=why):
            vetting.process(task, context)


def test_an_honest_model_passes_with_own_images_and_models_of_rounds_before(context, tmp_path):
    split = made_split()
    own = split.pool[split.clients[0]]
    np.savez(tmp_path / "own.npz", x=own.x.numpy(), y=own.y.numpy())
    vetting = VetModel(NETWORK, SHAPE, CLASSES, images=str(tmp_path / "own.npz"), history=1)
    for _ in range(2):
        task = packed(weights(), 1)
        assert vetting.process(task, context) is task


def received(context, number=0):
    """The context of a client that received the weights."""
    task = packed(weights(), 1)
    task.set_header("current_round", number)
    context.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
    context.set_prop(FLContextKey.TASK_DATA, task, private=True, sticky=False)
    return context


def defended(context, spec, result, **options):
    filtering = DefendUpdate(spec, NETWORK, SHAPE, CLASSES, **options)
    filtering.handle_event(EventType.BEFORE_TASK_EXECUTION, received(context))
    return from_shareable(filtering.process(result, context)).data


def trained():
    """Weights of which only some changed."""
    return weights() | {"1.bias": np.ones(16, np.float32)}


def test_what_no_defence_changes_is_sent_to_the_last_digit(context):
    sent = defended(context, "clipping(norm=1e5)", packed(trained(), 5))
    assert sent.keys() == trained().keys()
    for name, array in trained().items():
        np.testing.assert_array_equal(sent[name], array)


def test_noise_can_be_drawn_again_only_with_the_seed(context):
    def noise(**options):
        return defended(context, "gaussian-noise(std=0.1)", packed(trained(), 5), **options)["1.weight"]

    np.testing.assert_array_equal(noise(seed=1), noise(seed=1))
    assert not np.array_equal(noise(seed=1), noise(seed=2))
    assert not np.array_equal(noise(), noise())
    assert np.std(noise() - weights()["1.weight"]) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("tensors", [True, False])
def test_tensors_stay_tensors_and_arrays_arrays(context, tensors):
    result = {name: torch.from_numpy(array) if tensors else array for name, array in trained().items()}
    sent = defended(context, "clipping(norm=0.5)", packed(result, 5))
    assert all(isinstance(value, torch.Tensor) is tensors for value in sent.values())


def test_a_result_that_cannot_be_defended_stays_at_home_and_is_reported(context):
    for result, why in ((broken(weights(), 0), "NaN"), ({"1.bias": np.zeros(16, np.float32)}, "lacks")):
        assert defended(context, "clipping(norm=1.0)", packed(result, 5)) == {}
        assert why in context.get_engine().fired[-1][1]["what"]


def clipping():
    return DefendUpdate("clipping(norm=1.0)", NETWORK, SHAPE, CLASSES)


def with_meta(**meta):
    """A result that carries more than its weights."""
    message = packed(trained(), 5)
    exchanged = from_shareable(message)
    exchanged.meta |= meta
    return exchanged.update_shareable(message)


CONTROLS = {"1.bias": np.ones(16, np.float32)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaffold_c_diff", CONTROLS),
        ("tensors", {"1.bias": torch.ones(16)}),
        ("numbers", [[0.1, 0.2], [0.3, 0.4]]),
        ("bytes", b"anything"),
        ("nested", DXO(DataKind.WEIGHTS, CONTROLS)),
    ],
)
def test_arrays_beside_the_update_keep_the_whole_result_at_home(context, name, value):
    filtering = clipping()
    filtering.handle_event(EventType.BEFORE_TASK_EXECUTION, received(context))
    aside = packed(trained(), 5)
    aside[name] = value
    for result in (with_meta(**{name: value}), aside):
        sent = filtering.process(result, context)
        exchanged = from_shareable(sent)
        assert exchanged.data == {}
        assert name not in exchanged.meta
        assert name not in sent
        assert f"{name!r} travels beside the model" in context.get_engine().fired[-1][1]["what"]


def test_metrics_and_text_travel_beside_the_update(context):
    meta = {"initial_metrics": {"accuracy": 0.5, "loss": np.float32(0.1)}, "history": ["A"], "name": "digits"}
    filtering = clipping()
    filtering.handle_event(EventType.BEFORE_TASK_EXECUTION, received(context))
    exchanged = from_shareable(filtering.process(with_meta(**meta), context))
    assert exchanged.data
    assert exchanged.meta.items() >= meta.items()


COLLECTION = DXO(DataKind.COLLECTION, {"model": DXO(DataKind.WEIGHTS, CONTROLS)})


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (COLLECTION.to_shareable(), "it is of the kind 'COLLECTION', neither weights nor their difference"),
        (Shareable({"weights": CONTROLS}), "it is of a kind that FLARE does not exchange models by"),
    ],
)
@pytest.mark.parametrize("made", [clipping, MaskUpdates])
def test_a_result_that_is_no_model_stays_at_home_and_is_reported(context, result, why, made):
    filtering = made()
    filtering.handle_event(EventType.BEFORE_TASK_EXECUTION, received(context))
    sent = filtering.process(deepcopy(result), context)
    assert from_shareable(sent).data == {}
    assert "weights" not in sent
    assert why in context.get_engine().fired[-1][1]["what"]


def test_an_error_passes_as_it_is_and_a_model_that_comes_with_it_does_not(context):
    filtering = clipping()
    filtering.handle_event(EventType.BEFORE_TASK_EXECUTION, received(context))
    error = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert filtering.process(error, context) is error
    result = packed(trained(), 5)
    result.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
    sent = filtering.process(result, context)
    assert sent.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert from_shareable(sent).data == {}


def test_a_tensor_that_no_defence_acts_on_leaves_only_as_it_came(context):
    filtering = clipping()
    more = packed(weights() | {"more": np.zeros(2, np.float32)}, 1)
    context.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
    context.set_prop(FLContextKey.TASK_DATA, more, private=True, sticky=False)
    filtering.handle_event(EventType.BEFORE_TASK_EXECUTION, context)
    for changed, leaves in ((0, True), (1, False)):
        result = packed(trained() | {"more": np.full(2, changed, np.float32)}, 5)
        assert bool(from_shareable(filtering.process(result, context)).data) is leaves
    assert "it changes 'more'" in context.get_engine().fired[-1][1]["what"]


def test_a_defended_update_is_what_is_masked_and_nothing_else_of_the_result_leaves(context):
    defending = DefendUpdate("clipping(norm=0.5)", NETWORK, SHAPE, CLASSES)
    masking = MaskUpdates()
    result = packed(trained(), 5)
    for one in (defending, masking):
        one.handle_event(EventType.BEFORE_TASK_EXECUTION, received(context))
        result = one.process(result, context)
    assert from_shareable(result).data.keys() == {"names", "shapes"}
    update, samples = masking._update
    assert float(update.norm()) == pytest.approx(0.5, rel=1e-4)
    assert samples == 5
