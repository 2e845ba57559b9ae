"""Client mods for Flower: defences on updates, and refusing crafted models."""

import numpy as np
import pytest
import torch
from conftest import CLASSES, SHAPE, make_images, make_model, make_plain_model, make_split

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

from flower_grid import InProcess, adding  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict  # noqa: E402
from flwr.client import NumPyClient  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays  # noqa: E402
from flwr.compat.common.recorddict_compat import fitins_to_recorddict, recorddict_to_fitres  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

from glasshouse.defences import make_defences  # noqa: E402
from glasshouse.errors import BadInput  # noqa: E402
from glasshouse.integrations.flower.clients import GlasshouseClient  # noqa: E402
from glasshouse.integrations.flower.mods import defence_mod, vet_mod  # noqa: E402
from glasshouse.integrations.flower.records import vector_of  # noqa: E402
from glasshouse.learning.layout import Layout, read_vector  # noqa: E402
from glasshouse.learning.recipe import Recipe  # noqa: E402
from glasshouse.learning.seeds import derive, torch_rng  # noqa: E402


def asked(grid, arrays, place=0, number=1):
    """What a client answers that is asked to train from `arrays`."""
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": number})})
    message = Message(content, dst_node_id=grid.get_node_ids()[place], message_type="train")
    (reply,) = grid.send_and_receive([message])
    return reply


def update_of(model, change, *mods, number=1):
    """The update, as a vector, of a client that adds `change` to the state of `model`."""
    before = ArrayRecord(model.state_dict())
    reply = asked(InProcess([adding(change, mods=mods)]), before, number=number)
    layout = Layout.of(model)
    return vector_of(reply.content["arrays"], layout) - vector_of(before, layout)


def changes_of(model, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=tuple(tensor.shape)).astype("f4")
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    }


@pytest.mark.parametrize("spec", ["clipping(norm=0.5)", "pruning(fraction=0.9)+clipping", "gaussian-noise"])
def test_a_mod_changes_the_update_as_the_defence_does(spec):
    model = make_model()
    change, layout = changes_of(model), Layout.of(model)
    plain = update_of(model, change)
    rng = torch_rng(derive(5, "round", 1), "client", 0, "defence")
    expected = make_defences(spec).on_update(plain.clone(), layout, rng)
    for network in (None, model):
        defended = update_of(model, change, defence_mod(spec, network, seed=5), number=2)
        torch.testing.assert_close(defended, expected, rtol=0, atol=1e-6)


def test_without_a_seed_the_noise_is_another_one_every_time():
    model = make_plain_model()
    mod = defence_mod("gaussian-noise(std=1)")
    first, second = update_of(model, {}, mod), update_of(model, {}, mod)
    assert not torch.equal(first, second)
    assert 0.5 < float(first.std()) < 1.5


def test_statistics_and_counters_travel_as_they_are():
    model = make_model()
    before = ArrayRecord(model.state_dict())
    change = changes_of(model) | {"1.num_batches_tracked": 3}
    reply = asked(InProcess([adding(change, mods=[defence_mod("gaussian-noise(std=1)")])]), before)
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        sent, after = before[name].numpy(), reply.content["arrays"][name].numpy()
        np.testing.assert_array_equal(after, (sent + change[name]).astype(sent.dtype))
        assert after.dtype == sent.dtype
    noisy = reply.content["arrays"]["0.weight"].numpy() - before["0.weight"].numpy() - change["0.weight"]
    assert noisy.std() > 0.5


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ("vet", r"vet_mod\(model, shape\)"),
        ("secure-aggregation", "secure_mod"),
        ("dp-sgd", "GlasshouseClient"),
        ("clipping+adversarial-training", "GlasshouseClient"),
        ("mix-up", "GlasshouseClient"),
        ("larger-batches", "GlasshouseClient"),
        ("more-local-steps", "GlasshouseClient"),
        ("early-stopping", "end it in your server app"),
        ("differential-privacy", "use clipping and gaussian-noise"),
    ],
)
def test_a_defence_that_a_mod_cannot_apply_is_refused_with_what_to_do(spec, remedy):
    with pytest.raises(BadInput, match=remedy):
        defence_mod(spec)


def test_an_update_that_cannot_be_defended_is_not_sent():
    grid = InProcess([adding({"0.weight": np.zeros((2, 4, 1, 3, 3))}, mods=[defence_mod("clipping")])])
    reply = asked(grid, ArrayRecord(make_model().state_dict()))
    assert "send back the arrays that were received" in reply.error.reason


def test_arrays_beside_the_model_are_not_sent_as_no_mod_defends_them():
    """From the change of its control variate a server would read the very update that the noise hides."""
    split, model = make_split(), make_plain_model()

    def scaffold(mods=(), **options):
        recipe = Recipe(batch_size=8, lr=0.1)
        client = GlasshouseClient(
            "scaffold", model, lambda context: split.client(0), recipe=recipe, seed=1, **options
        )
        return InProcess([client.app(mods)])

    before, spec = ArrayRecord(model.state_dict()), "clipping(norm=0.01)+gaussian-noise(std=0.001)"
    reply = asked(scaffold([defence_mod(spec)]), before)
    assert "the reply carries 'glasshouse.summed' beside the model" in reply.error.reason
    assert "GlasshouseClient(..., defences=...)" in reply.error.reason
    defended = asked(scaffold(defences=spec), before).content
    moved = vector_of(defended["arrays"], Layout.of(model)) - read_vector(model)
    summed = torch.from_numpy(defended["glasshouse.summed"]["summed"].numpy())
    moved = moved[: len(summed)]
    rate = moved @ summed / (summed @ summed)
    torch.testing.assert_close(moved, rate * summed, rtol=1e-3, atol=1e-6)  # it has the same noise


def test_a_model_among_other_arrays_is_not_sent_either():
    def more(message, context, call_next):
        reply = call_next(message, context)
        reply.content["prototypes"] = ArrayRecord([np.ones(3)])
        return reply

    grid = InProcess([adding({}, mods=[defence_mod("clipping", arrays="arrays"), more])])
    reply = asked(grid, ArrayRecord(make_model().state_dict()))
    assert "'prototypes' beside the model" in reply.error.reason


def test_a_defence_mod_works_with_a_legacy_client():
    class Client(NumPyClient):
        def fit(self, parameters, config):
            return [array + 3 for array in parameters], 7, {}

    app = ClientApp(client_fn=lambda context: Client().to_client(), mods=[defence_mod("clipping(norm=0.1)")])
    parameters = ndarrays_to_parameters([np.zeros((4, 5), "f4"), np.zeros(3, "f4")])
    content = fitins_to_recorddict(FitIns(parameters, {}), keep_input=True)
    grid = InProcess([app])
    (reply,) = grid.send_and_receive(
        [Message(content, dst_node_id=grid.get_node_ids()[0], message_type="train")]
    )
    result = recorddict_to_fitres(reply.content, keep_input=True)
    trained = np.concatenate([array.ravel() for array in parameters_to_ndarrays(result.parameters)])
    assert np.linalg.norm(trained) == pytest.approx(0.1, rel=1e-5)
    assert result.num_examples == 7


def crafted(model):
    """The model with a first layer of rows in one direction and climbing biases, which leaks its inputs."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weight = state["1.weight"]
    state["1.weight"] = torch.ones_like(weight) / weight.shape[1]
    state["1.bias"] = -torch.linspace(0.1, 0.9, len(weight))
    return ArrayRecord(state)


def vetting(model, **options):
    return InProcess([adding({}, mods=[vet_mod(model, SHAPE, CLASSES, **options)])])


def test_an_honest_model_is_trained_and_a_crafted_one_refused_with_the_reason():
    model = make_plain_model()
    grid = vetting(model)
    assert asked(grid, ArrayRecord(model.state_dict())).has_content()
    reply = asked(grid, crafted(model), number=4)
    assert "refused to train the model received: " in reply.error.reason
    assert "1: " in reply.error.reason  # the layer
    assert grid.contexts[0].state["glasshouse.vet"]["refused-round"] == 4


def test_a_server_need_not_be_told_why(caplog):
    model = make_plain_model()
    reply = asked(vetting(model, tell=False), crafted(model))
    assert reply.error.reason == "refused to train the model received"
    assert "refused to train the model received: " in caplog.text


def test_a_round_goes_on_without_those_who_refuse():
    model = make_plain_model()
    change = {"3.bias": np.ones(CLASSES, "f4")}
    grid = InProcess([adding(change, mods=[vet_mod(model, SHAPE)]), adding(change), adding({}, mods=[])])
    result = FedAvg(fraction_evaluate=0.0).start(grid, crafted(model), num_rounds=1)
    moved = result.arrays["3.bias"].numpy() - model.state_dict()["3.bias"].numpy()
    np.testing.assert_allclose(moved, 0.5, rtol=1e-5)


def test_arrays_of_another_network_are_refused():
    reply = asked(vetting(make_model()), ArrayRecord(make_plain_model().state_dict()))
    assert "it is not the model agreed on: 0.weight is missing" in reply.error.reason


def test_arrays_without_names_are_taken_in_the_order_of_the_networks():
    model = make_model()
    arrays = [tensor.numpy() for tensor in model.state_dict().values()]
    assert asked(vetting(model), ArrayRecord(arrays)).has_content()


def test_a_layer_that_was_replaced_since_the_round_before_is_seen_with_history():
    model, other = make_plain_model(), make_plain_model(seed=8)
    swapped = model.state_dict() | {
        name: tensor for name, tensor in other.state_dict().items() if name.startswith("1.")
    }
    for history, refused in ((0, False), (2, True)):
        grid = vetting(model, history=history)
        assert asked(grid, ArrayRecord(model.state_dict())).has_content()
        reply = asked(grid, ArrayRecord(swapped), number=2)
        assert reply.has_error() is refused
        if refused:
            assert "not those of the round before" in reply.error.reason
            kept = [name for name in grid.contexts[0].state if name.startswith("glasshouse.vet.")]
            assert len(kept) == 1  # a refused model does not become history


def test_history_is_bounded_and_its_order_is_that_of_the_rounds():
    model = make_plain_model()
    grid = vetting(model, history=2)
    for number in range(1, 5):
        state = {name: tensor + 1e-3 * number for name, tensor in model.state_dict().items()}
        assert asked(grid, ArrayRecord(state), number=number).has_content()
    kept = [grid.contexts[0].state[f"glasshouse.vet.{place:06d}"]["3.bias"].numpy() for place in range(2)]
    bias = model.state_dict()["3.bias"].numpy()
    for number, array in zip((3, 4), kept, strict=True):
        np.testing.assert_allclose(array, bias + 1e-3 * number, atol=1e-6)
    assert "glasshouse.vet.000002" not in grid.contexts[0].state


def test_images_of_another_shape_are_refused_before_any_round():
    with pytest.raises(BadInput, match="images of shape"):
        vet_mod(make_plain_model(), SHAPE, images=torch.zeros(4, 3, 8, 8))


def test_defences_and_vetting_that_act_on_training_go_with_our_own_client():
    split, model = make_split(), make_plain_model()
    client = GlasshouseClient(
        "fedavg", model, lambda context: split.client(0), defences="vet+dp-sgd(noise=1)+clipping(norm=0.01)"
    )
    grid = InProcess([client.app()])
    before = ArrayRecord(model.state_dict())
    layout = Layout.of(model)
    moved = vector_of(asked(grid, before).content["arrays"], layout) - read_vector(model)
    assert 0 < float(moved.norm()) <= 0.01 + 1e-6
    assert "refused to train" in asked(grid, crafted(model)).error.reason


def test_what_only_a_server_can_do_is_refused_by_our_own_client_too():
    for spec in ("differential-privacy", "secure-aggregation", "early-stopping", "dp-sgd(target_epsilon=3)"):
        with pytest.raises(BadInput):
            GlasshouseClient("fedavg", make_plain_model(), lambda context: make_images(4), defences=spec)
