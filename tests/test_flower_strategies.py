"""The strategies of Glasshouse as strategies of Flower."""

import pytest
import torch
from conftest import CLASSES, SHAPE, make_model, make_split

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

from flower_grid import FIRST, InProcess, adding  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord  # noqa: E402
from test_strategies import QUICK, RECIPE, SIZES  # noqa: E402

from glasshouse.errors import BadInput  # noqa: E402
from glasshouse.federation.channels.secure import Secure  # noqa: E402
from glasshouse.federation.federation import Federation, Plan  # noqa: E402
from glasshouse.federation.strategies import STRATEGIES  # noqa: E402
from glasshouse.integrations.flower import record  # noqa: E402
from glasshouse.integrations.flower.clients import GlasshouseClient  # noqa: E402
from glasshouse.integrations.flower.labels import PROTOCOL, REPORT  # noqa: E402
from glasshouse.integrations.flower.masking import secure_mod  # noqa: E402
from glasshouse.integrations.flower.records import vector_of  # noqa: E402
from glasshouse.integrations.flower.strategies import GlasshouseStrategy  # noqa: E402
from glasshouse.integrations.flower.summing import SecureGrid  # noqa: E402
from glasshouse.learning.layout import Layout, read_vector  # noqa: E402
from glasshouse.learning.recipe import Recipe  # noqa: E402
from glasshouse.recording.reader import read_recording  # noqa: E402

SPLIT = make_split(SIZES)
FROM_SUMS = [name for name in STRATEGIES if not STRATEGIES.make(name).needs_updates]


def own_images(context):
    return SPLIT.client(context.node_config["partition-id"])


def make_apps(spec, mods=(), **options):
    options = {"recipe": RECIPE, "seed": 3} | options
    return [
        GlasshouseClient(QUICK.get(spec, spec), make_model(), own_images, **options).app(mods) for _ in SIZES
    ]


def make_strategy(spec, **options):
    options = {"fraction": 0.5, "min_clients": len(SIZES), "seed": 3} | options
    if spec == "feddf":
        options["images"] = SPLIT.images("auxiliary")
    return GlasshouseStrategy(QUICK.get(spec, spec), make_model(), SHAPE, CLASSES, **options)


def in_flower(strategy, grid, rounds=3):
    result = strategy.start(grid, strategy.initial_arrays(), num_rounds=rounds)
    return vector_of(result.arrays, Layout.of(make_model()))


def in_glasshouse(spec, engine, channel=None, rounds=3, defences=None):
    model, strategy = make_model(), STRATEGIES.make(QUICK.get(spec, spec))
    federation = Federation(
        model, SPLIT, RECIPE, engine=engine, strategy=strategy, channel=channel, defences=defences, seed=3
    )
    return federation.run(read_vector(model), Plan(rounds=rounds, fraction=0.5)).vector


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_strategy_ends_with_the_very_model_that_it_ends_with_outside_of_flower(name, engine):
    vector = in_flower(make_strategy(name), InProcess(make_apps(name)))
    assert torch.equal(vector, in_glasshouse(name, engine))


@pytest.mark.parametrize("name", FROM_SUMS)
def test_every_strategy_that_needs_sums_alone_works_under_masks(name, engine):
    grid = InProcess(make_apps(name, [secure_mod(reports=True)]))
    vector = in_flower(make_strategy(name), SecureGrid(grid), rounds=2)
    expected = in_glasshouse(name, engine, Secure(), rounds=2)
    torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - set(FROM_SUMS)))
def test_a_strategy_that_looks_at_single_updates_refuses_a_grid_that_hides_them(name):
    with pytest.raises(BadInput, match="shows only the sum; give the grid itself"):
        in_flower(make_strategy(name), SecureGrid(InProcess(make_apps(name, [secure_mod()]))))


def test_under_masks_a_report_is_not_sent_unless_the_client_says_so():
    """Each client's loss would stand beside its masked update, in the clear."""
    grid = InProcess(make_apps("afl", [secure_mod()]))
    result = make_strategy("afl").start(SecureGrid(grid), make_strategy("afl").initial_arrays(), num_rounds=1)
    assert len(result.arrays) == 0
    refused = [reply.error.reason for reply in grid.seen if reply.has_error()]
    assert refused
    assert all("allow that by secure_mod(reports=True)" in reason for reason in refused)
    assert not any(REPORT in reply.content for reply in grid.seen if reply.has_content())


def test_clients_are_numbered_by_their_partition_whatever_their_nodes(engine):
    grid = InProcess(make_apps("afl"))
    grid.get_node_ids = lambda: [FIRST + place for place in (4, 0, 5, 2, 1, 3)]
    assert torch.equal(in_flower(make_strategy("afl"), grid), in_glasshouse("afl", engine))


def test_clients_without_a_partition_are_numbered_by_their_node():
    def images(context):
        return SPLIT.client(context.node_id - FIRST)

    client = GlasshouseClient("fedavg", make_model(), images, recipe=RECIPE)
    grid, strategy = InProcess([client.app() for _ in SIZES]), make_strategy("fedavg")
    for context in grid.contexts:
        context.node_config = {}
    assert torch.isfinite(in_flower(strategy, grid, rounds=1)).all()
    assert [member.number for member in strategy._members] == [FIRST + place for place in range(len(SIZES))]


def test_a_strategy_of_glasshouse_is_recorded_as_flowers_are(tmp_path, engine):
    grid = InProcess(make_apps("fed-fsnet"))
    vector = in_flower(record(make_strategy("fed-fsnet"), tmp_path / "record"), grid)
    assert torch.equal(vector, in_glasshouse("fed-fsnet", engine))
    rounds = read_recording(tmp_path / "record").rounds
    assert [len(one.clients) for one in rounds] == [3, 3, 3]


def test_clients_that_do_not_answer_are_left_out_and_the_round_goes_on(caplog):
    def lost(place, message):
        return place == 1 or (place == 4 and message.metadata.message_type == "train")

    grid = InProcess(make_apps("fed-fsnet"), lost)
    strategy = make_strategy("fed-fsnet", fraction=1.0)
    vector = in_flower(strategy, grid)
    assert torch.isfinite(vector).all()
    assert not torch.equal(vector, read_vector(make_model()))
    assert "Received 4 results and 0 failures" in caplog.text


def test_a_round_without_any_reply_leaves_the_model_as_it_is():
    grid = InProcess(make_apps("fedavg"), lambda place, message: message.metadata.message_type == "train")
    result = make_strategy("fedavg").start(grid, make_strategy("fedavg").initial_arrays(), num_rounds=1)
    assert len(result.arrays) == 0


def broken(how):
    """What becomes of the reply of the client at place 2."""

    def changed(place, reply):
        if place != 2 or "arrays" not in reply.content:
            return reply
        arrays = {name: array.numpy() for name, array in reply.content["arrays"].items()}
        if how == "NaN":
            arrays["0.bias"] = arrays["0.bias"] * float("nan")
        elif how == "shape":
            arrays["0.bias"] = arrays["0.bias"][:2]
        elif how == "missing":
            del arrays["0.bias"]
        elif how == "samples":
            reply.content["metrics"]["num-examples"] = 10**6
        records = {name: Array(array) for name, array in arrays.items()}
        if how == "garbage":
            records["0.bias"] = Array("float32", (4,), "numpy.ndarray", b"")
        elif how == "report":
            reply.content["glasshouse.report"] = ArrayRecord({"moments": Array(torch.zeros(3).numpy())})
        elif how == "no report":
            del reply.content["glasshouse.report"]
        elif how == "a sum":
            reply.content[PROTOCOL] = ConfigRecord({"stage": "opened", "clients": len(SIZES), "clipped": 0})
        reply.content["arrays"] = ArrayRecord(records)
        return reply

    return changed


@pytest.mark.parametrize(
    "how", ["NaN", "shape", "missing", "samples", "garbage", "report", "no report", "a sum"]
)
def test_a_reply_that_cannot_be_used_is_left_out_with_the_number_of_its_node(how, caplog):
    grid = InProcess(make_apps("fed-fsnet"), changed=broken(how))
    lacking = InProcess(make_apps("fed-fsnet"), lambda place, message: place == 2 and message.content)
    vector = in_flower(make_strategy("fed-fsnet", fraction=1.0), grid, rounds=1)
    assert f"node {FIRST + 2} is left out: " in caplog.text
    assert torch.isfinite(vector).all()
    assert torch.equal(vector, in_flower(make_strategy("fed-fsnet", fraction=1.0), lacking, rounds=1))


def test_scaffold_forgets_a_round_whose_reply_was_lost():
    """What the server keeps is the mean of what all clients keep, or both would drift apart."""
    drop = {1: {2}, 3: {0, 2}}  # by round, the places whose reply does not arrive

    class Losing(InProcess):
        number = 0

        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            self.number += replies != [] and "arrays" in replies[0].content
            gone = drop.get(self.number, ())
            return [reply for reply in replies if reply.metadata.src_node_id - FIRST not in gone]

    strategy, grid = make_strategy("scaffold", fraction=1.0), Losing(make_apps("scaffold"))
    in_flower(strategy, grid, rounds=4)
    total = torch.zeros(Layout.of(make_model()).trainable)
    for size, context in zip(SIZES, grid.contexts, strict=True):
        total += size / sum(SIZES) * torch.from_numpy(context.state["glasshouse.pending"]["variate"].numpy())
    torch.testing.assert_close(strategy._memory["variate"], total, rtol=1e-4, atol=1e-5)


def test_without_a_seed_clients_draw_from_fresh_entropy():
    first, second = (
        in_flower(make_strategy("fedavg"), InProcess(make_apps("fedavg", seed=None)), rounds=1)
        for _ in range(2)
    )
    assert not torch.equal(first, second)


def test_a_client_whose_introduction_cannot_be_read_stays_out(caplog):
    def changed(place, reply):
        if place == 2 and "glasshouse.client" in reply.content:
            reply.content["glasshouse.client"]["samples"] = float("inf")
        return reply

    strategy = make_strategy("fedavg", fraction=1.0)
    in_flower(strategy, InProcess(make_apps("fedavg"), changed=changed), rounds=1)
    assert [member.number for member in strategy._members] == [0, 1, 3, 4, 5]
    assert f"node {FIRST + 2} stays out" in caplog.text


def test_an_app_of_another_kind_is_told_what_to_run():
    with pytest.raises(BadInput, match="have them run GlasshouseClient"):
        in_flower(make_strategy("fedavg", min_clients=1), InProcess([adding({})]))


def test_what_a_strategy_needs_is_asked_for_before_the_first_round():
    with pytest.raises(BadInput, match="needs images of the server"):
        GlasshouseStrategy("feddf", make_model(), SHAPE, CLASSES)
    with pytest.raises(BadInput, match="reply with weights, not gradients"):
        GlasshouseStrategy("fedsgd(gradients=True)", make_model(), SHAPE, CLASSES)
    with pytest.raises(BadInput, match="scaffold computes"):
        GlasshouseClient("scaffold", make_model(), own_images, recipe=Recipe(momentum=0.9))
