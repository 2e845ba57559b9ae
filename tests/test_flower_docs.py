"""What docs/flower-mods.md shows is run: its clients under its servers, section by section."""

import sys

import docs_world
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

from flower_grid import InProcess  # noqa: E402
from flwr.app import Context, RecordDict  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

from glasshouse.integrations.flower.records import trains  # noqa: E402

PAGE = (docs_world.ROOT / "docs" / "flower-mods.md").read_text()


def averaging(names):
    """A server that a section does without: plain FedAvg."""
    server = ServerApp()

    @server.main()
    def main(grid, context):
        first = names["ArrayRecord"](names["Net"]().state_dict())
        FedAvg(fraction_evaluate=0.0).start(grid, first, num_rounds=3)

    return server


@pytest.fixture
def digits_app(monkeypatch):
    monkeypatch.syspath_prepend(docs_world.ROOT / "examples" / "flower_app")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are tiny
    yield
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.partition(".")[0] == "digits_app"]:
        del sys.modules[name]


def test_each_section_trains_and_no_client_fails(digits_app):
    names, played = {"__name__": "snippet"}, 0
    for section in PAGE.split("\n## ")[1:]:
        codes = [code for kind, code in docs_world.BLOCK.findall(section) if kind == "python"]
        names.pop("server", None)
        for code in codes:
            exec(compile(code, "snippet", "exec"), names)
        if not codes:
            continue
        server = names.get("server") or averaging(names)
        grid = InProcess([names["client"]] * 3)
        context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
        server(grid, context)
        trained = [reply for reply in grid.seen if trains(reply)]
        assert len(trained) >= 6
        assert [reply.error.reason for reply in trained if reply.has_error()] == []
        played += 1
    assert played == 4
