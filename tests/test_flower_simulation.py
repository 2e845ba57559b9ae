"""Strategies, secure sums and mods of Glasshouse in Flower's own simulation runtime."""

import pytest
import torch
from conftest import CLASSES, SHAPE, make_model, make_split

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytest.importorskip("ray", reason="Flower simulates on Ray: pip install 'flwr[simulation]'")
pytestmark = [pytest.mark.extras, pytest.mark.slow]

from flwr.serverapp import ServerApp  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from glasshouse.federation.channels.secure import Secure  # noqa: E402
from glasshouse.federation.federation import Federation, Plan  # noqa: E402
from glasshouse.federation.strategies import STRATEGIES  # noqa: E402
from glasshouse.integrations.flower.clients import GlasshouseClient  # noqa: E402
from glasshouse.integrations.flower.masking import secure_mod  # noqa: E402
from glasshouse.integrations.flower.mods import vet_mod  # noqa: E402
from glasshouse.integrations.flower.records import vector_of  # noqa: E402
from glasshouse.integrations.flower.strategies import GlasshouseStrategy  # noqa: E402
from glasshouse.integrations.flower.summing import SecureGrid  # noqa: E402
from glasshouse.learning.layout import Layout, read_vector  # noqa: E402
from glasshouse.learning.recipe import Recipe  # noqa: E402

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1)
SIZES = (30, 20, 14)


def test_scaffold_under_masks_in_the_simulation_runtime_ends_as_in_glasshouse(engine):
    """What clients keep between messages, secrets and control variates, lives in their contexts there."""
    split, results = make_split(SIZES), {}
    mods = [secure_mod(), vet_mod(make_model(), SHAPE)]
    client = GlasshouseClient(
        "scaffold",
        make_model(),
        lambda context: split.client(context.node_config["partition-id"]),
        recipe=RECIPE,
        defences="clipping(norm=100)",
        seed=3,
    )
    server = ServerApp()

    @server.main()
    def main(grid, context):
        strategy = GlasshouseStrategy("scaffold", make_model(), SHAPE, CLASSES, min_clients=3, seed=3)
        results["arrays"] = strategy.start(SecureGrid(grid), strategy.initial_arrays(), num_rounds=2).arrays

    run_simulation(
        server_app=server,
        client_app=client.app(mods),
        num_supernodes=len(SIZES),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    model = make_model()
    federation = Federation(
        model, split, RECIPE, engine=engine, strategy=STRATEGIES.make("scaffold"), channel=Secure(), seed=3
    )
    expected = federation.run(read_vector(model), Plan(rounds=2)).vector
    vector = vector_of(results["arrays"], Layout.of(model))
    torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-4)
