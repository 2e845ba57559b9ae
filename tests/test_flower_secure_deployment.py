"""A secure sum and a look at each model in a real Flower deployment: processes, TLS, keys."""

import pytest

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = [pytest.mark.extras, pytest.mark.slow]

import torch  # noqa: E402
from flower_projects import Deployment, change, copied, with_two_lines  # noqa: E402

from glasshouse.recording.reader import read_recording  # noqa: E402

NODES = ["ward-a", "ward-b", "ward-c"]

CRAFTING = """
def crafted(arrays):
    state = arrays.to_torch_state_dict()
    state["fc1.weight"] = torch.ones(32, 64) / 64
    state["fc1.bias"] = -torch.linspace(0.01, 0.5, 32)
    return ArrayRecord(state)


"""


@pytest.fixture
def app(tmp_path):
    """The example's app with two lines more at the clients, one at the server, and a record of its own."""
    app = copied(tmp_path)
    with_two_lines(app, tmp_path / "record", more=', channel="sum"')
    change(
        app,
        "digits_app/client_app.py",
        ("app = ClientApp()", "app = ClientApp(mods=[secure_mod(), vet_mod(Net(), SHAPE, history=1)])"),
        (
            "import Net, load_data, train\n",
            "import SHAPE, Net, load_data, train\n"
            "from glasshouse.integrations.flower import secure_mod, vet_mod\n",
        ),
    )
    change(
        app,
        "digits_app/server_app.py",
        ("import record\n", "import SecureGrid, record\n"),
        ("grid=grid,", "grid=SecureGrid(grid),"),
    )
    return app


def deployed(tmp_path, app, **settings):
    with Deployment(tmp_path / "net") as deployment:
        for place, name in enumerate(NODES):
            deployment.add_node(name, f"partition-id={place} num-partitions={len(NODES)}")
        deployment.wait_for_nodes(len(NODES))
        return deployment.run(app, folder=str(tmp_path), **settings)


def test_a_deployment_learns_from_sums_alone(tmp_path, app):
    said = deployed(tmp_path, app, num_server_rounds=2)
    assert said.count("opened the sum of 3 of 3 clients' updates") == 2, said
    assert (tmp_path / "final_model.pt").exists()
    rounds = read_recording(tmp_path / "record").rounds
    assert [[client.file for client in one.clients] for one in rounds] == [[None] * 3] * 2


def test_a_crafting_server_of_a_deployment_gets_reasons_and_no_sum(tmp_path, app):
    change(
        app,
        "digits_app/server_app.py",
        ("@app.main()\n", f"{CRAFTING}@app.main()\n"),
        (
            "initial_arrays=ArrayRecord(Net().state_dict())",
            "initial_arrays=crafted(ArrayRecord(Net().state_dict()))",
        ),
    )
    said = deployed(tmp_path, app, num_server_rounds=1)
    assert said.count("refused to train the model received") >= 3, said
    assert "in fc1" in said
    assert torch.load(tmp_path / "final_model.pt", weights_only=True) == {}
