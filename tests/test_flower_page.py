"""What docs/flower.md shows is run: its servers with the example's clients, and its audits."""

import shlex
import shutil
import sys

import docs_world
import pytest

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

import flower_apps  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord  # noqa: E402
from flwr.serverapp.strategy import Strategy  # noqa: E402

PAGE = docs_world.ROOT / "docs" / "flower.md"
ELSEWHERE = {
    "flwr run .": "test_flower_app.py",
    "python examples/flower_deployment/deployment.py examples/flower_app out": "test_flower_deployment.py",
}
"""What commands that start processes begin with, and the tests that run what they do."""

CONFIG = {"local-epochs": 1, "batch-size": 16, "learning-rate": 0.1}


@pytest.fixture
def in_app(monkeypatch, tmp_path):
    folder = shutil.copytree(docs_world.ROOT / "examples" / "flower_app", tmp_path / "app")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    yield
    for name in [name for name in sys.modules if name.startswith("digits_app")]:
        del sys.modules[name]


def named(node, number, reply):
    """What the page says that a client should add to its reply."""
    reply.content["client"] = ConfigRecord({"name": str(node - 701)})
    return reply


def play(strategy):
    """Two rounds of the example's own clients."""
    from digits_app.client_app import app
    from digits_app.task import Net

    with flower_apps.identity():
        grid = flower_apps.LocalGrid(app, [701, 702, 703], named, run_config=CONFIG)
        strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=2)


def test_what_the_page_shows_can_be_run(in_app, monkeypatch):
    docs_world.shrunk(monkeypatch)
    names, played = {"__name__": "snippet"}, []
    for kind, code in docs_world.BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            exec(compile(code, "snippet", "exec"), names)
            if isinstance(strategy := names.pop("strategy", None), Strategy):
                play(strategy)
                played.append(strategy)
            continue
        for line in filter(None, code.splitlines()):
            if not line.startswith(tuple(ELSEWHERE)):
                assert shlex.split(line)[0] == "glasshouse"
                docs_world.run_line(line)
    assert len(played) == 3
