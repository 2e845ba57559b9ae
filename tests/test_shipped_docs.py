"""What the page of shipped defences shows of a framework is run where that framework is installed."""

import docs_world
import pytest

PAGE = docs_world.ROOT / "docs" / "shipped-defences.md"


@pytest.mark.extras
@pytest.mark.parametrize(("framework", "package"), [("flare", "nvflare"), ("flower", "flwr")])
def test_what_the_page_shows_of_a_framework_can_be_run(framework, package, monkeypatch, tmp_path):
    pytest.importorskip(package)
    docs_world.shrunk(monkeypatch)
    world = docs_world.World(tmp_path)
    blocks = [block[0] for block in docs_world.BLOCK.finditer(PAGE.read_text())]
    shown = [block for block in blocks if f"integrations.{framework}" in block]
    assert shown
    with docs_world.entered(world.folder):
        docs_world.run_page(world, "\n".join(shown), lambda code: None)
