"""An app that knows nothing of Glasshouse, run by Flower's own command, is audited by two more lines."""

import sys

import pytest

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytest.importorskip("ray", reason="Flower's simulation needs Ray")
pytestmark = pytest.mark.extras

from flower_projects import (  # noqa: E402
    EXAMPLES,
    Simulation,
    change,
    copied,
    images_of,
    with_two_lines,
)
from test_recorded_audit import setting  # noqa: E402

from glasshouse import audit_record  # noqa: E402
from glasshouse.recording.reader import read_recording  # noqa: E402


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    with Simulation(tmp_path_factory.mktemp("simulation")) as running:
        yield running


@pytest.fixture
def in_app(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES / "flower_app")
    yield
    for name in [name for name in sys.modules if name.startswith("digits_app")]:
        del sys.modules[name]


def audited(record, folder, attacks, names=None):
    return audit_record(
        record,
        setting(attacks, shadows=0),
        model="digits_app.task:Net",
        out=folder / "run",
        workers=1,
        quiet=True,
        **images_of(EXAMPLES / "flower_app", folder, names),
    ).findings


def test_an_app_is_audited_by_adding_two_lines(simulation, tmp_path, in_app):
    app = copied(tmp_path)
    before = (app / "digits_app" / "server_app.py").read_text().splitlines()
    with_two_lines(app, tmp_path / "record")
    after = (app / "digits_app" / "server_app.py").read_text().splitlines()
    assert len(after) == len(before) + 2
    said = simulation.run(app, folder=str(tmp_path), num_server_rounds=2)
    assert (tmp_path / "final_model.pt").exists(), said
    recording = read_recording(tmp_path / "record")
    assert [one.number for one in recording.rounds] == [1, 2]
    assert len(recording.clients) == 3
    found = audited(tmp_path / "record", tmp_path, ["loss-threshold"])
    seen = {(one.adversary, one.attack) for one in found if one.value is not None}
    assert ("outsider", "loss-threshold") in seen


def test_its_version_with_secure_aggregation_is_audited_as_a_blind_server(simulation, tmp_path, in_app):
    app = copied(tmp_path)
    change(
        app,
        "pyproject.toml",
        ("digits_app.server_app:app", "digits_app.secure_server:app"),
        ("digits_app.client_app:app", "digits_app.secure_client:app"),
    )
    more = ', model=Net(), channel="sum", named_by="partition-id"'
    with_two_lines(app, tmp_path / "record", "secure_server", more)
    said = simulation.run(app, num_server_rounds=2)
    recording = read_recording(tmp_path / "record")
    assert [one.number for one in recording.rounds] == [1, 2], said
    assert all(client.file is None for one in recording.rounds for client in one.clients)
    assert all(one.sum is not None for one in recording.rounds)
    found = audited(
        tmp_path / "record", tmp_path, ["loss-threshold", "label-counts"], {0: "0", 1: "1", 2: "2"}
    )
    able = {one.adversary for one in found if one.value is not None}
    assert "blind server" in able
    assert "curious server" not in able


def test_a_server_that_crafts_its_model_is_caught_by_the_mod_of_its_clients(simulation, tmp_path):
    app = copied(tmp_path)
    change(app, "pyproject.toml", ("digits_app.server_app:app", "digits_app.crafting_server:app"))
    change(
        app,
        "digits_app/client_app.py",
        ("app = ClientApp()", "app = ClientApp(mods=[vet_mod(Net(), SHAPE)])"),
        ("import Net, load_data", "import SHAPE, Net, load_data"),
        (IMPORT_OF_FLOWER, IMPORT_OF_FLOWER + "from glasshouse.integrations.flower import vet_mod\n"),
    )
    said = simulation.run(app)
    assert "Received 0 results and 3 failures" in said
    assert said.count("Received error in reply from node") == 3
    assert "refused to train the model received: staircase in fc1" in said


IMPORT_OF_FLOWER = "from flwr.clientapp import ClientApp\n"
