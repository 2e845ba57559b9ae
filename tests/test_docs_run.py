"""Whatever the documentation shows is run: every command, every snippet, every configuration."""

import json
import shutil
import sys

import docs_world
import pytest

PAGES = [docs_world.ROOT / "README.md", *sorted((docs_world.ROOT / "docs").rglob("*.md"))]
ELSEWHERE = ("api.md", "shipped-defences.md")
"""The reference, and pages that need an extra: test_shipped_docs.py runs them."""
SHOWING = [page for page in PAGES if docs_world.BLOCK.search(page.read_text()) and page.name not in ELSEWHERE]
LONG = ("robustness.md",)
"""Pages of which one snippet alone takes half a minute."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    before, loaded = list(sys.path), set(sys.modules)
    yield docs_world.World(tmp_path_factory.mktemp("docs"))
    sys.path[:] = before
    for name in set(sys.modules) - loaded:
        if getattr(sys.modules[name], "__file__", None) is None:
            continue
        if "docs" in str(sys.modules[name].__file__) and name.startswith(("my_", "record_", "bring_")):
            del sys.modules[name]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in SHOWING
    ],
)
def test_what_a_page_shows_can_be_run(page, world, monkeypatch, tmp_path):
    docs_world.shrunk(monkeypatch)
    running = []
    folder = shutil.copytree(world.folder, tmp_path / "world")
    with docs_world.entered(folder):
        try:
            docs_world.run_page(world, page.read_text(), running.append)
        except BaseException as error:
            raise AssertionError(f"{page.name} shows what does not run:\n{running[-1]}\n{error!r}") from error


def test_the_notebook_runs_from_its_first_cell_to_its_last(world, monkeypatch):
    docs_world.shrunk(monkeypatch)
    notebook = json.loads((docs_world.ROOT / "docs" / "first-audit.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)  # numbers are made where it is run
    names: dict[str, object] = {"__name__": "notebook"}
    with docs_world.entered(world.folder):
        for cell in cells:
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
        assert names["results"].report.exists()
    assert set(names["frame"].attack.dropna()) >= {"loss-threshold", "gap"}
