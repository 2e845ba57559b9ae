"""The strategies of Glasshouse as strategies of Flower."""

import pytest
import torch
from conftest import CLASSES, SHAPE, make_model, make_split

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

from flower_grid import InProcess  # noqa: E402
from test_strategies import QUICK, RECIPE, SIZES  # noqa: E402

from glasshouse.errors import BadInput  # noqa: E402
from glasshouse.federation.channels.secure import Secure  # noqa: E402
from glasshouse.federation.federation import Federation, Plan  # noqa: E402
from glasshouse.federation.strategies import STRATEGIES  # noqa: E402
from glasshouse.integrations.flower.clients import GlasshouseClient  # noqa: E402
from glasshouse.integrations.flower.records import vector_of  # noqa: E402
from glasshouse.integrations.flower.secure_grid import SecureGrid  # noqa: E402
from glasshouse.integrations.flower.secure_mod import secure_mod  # noqa: E402
from glasshouse.integrations.flower.strategies import GlasshouseStrategy  # noqa: E402
from glasshouse.learning.layout import Layout, read_vector  # noqa: E402

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
    grid = InProcess(make_apps(name, [secure_mod()]))
    vector = in_flower(make_strategy(name), SecureGrid(grid), rounds=2)
    expected = in_glasshouse(name, engine, Secure(), rounds=2)
    torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - set(FROM_SUMS)))
def test_a_strategy_that_looks_at_single_updates_refuses_a_grid_that_hides_them(name):
    with pytest.raises(BadInput, match="shows only the sum; give the grid itself"):
        in_flower(make_strategy(name), SecureGrid(InProcess(make_apps(name, [secure_mod()]))))
