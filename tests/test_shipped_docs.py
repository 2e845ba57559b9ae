"""What the page of shipped defences shows of a framework is run where that framework is installed."""

import math
import re

import docs_world
import pytest

from glasshouse.defences.promise import Conditions
from glasshouse.integrations.flare.shipped import SVTPrivacy
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.families import gaussian_epsilon

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


@pytest.mark.extras
def test_what_svt_privacy_costs_is_what_the_page_says():
    pytest.importorskip("nvflare")
    rows = re.findall(r"^\| ([\d,]+), (?:the|a) [\w ]+((?:\| [\d.,]+ )+)\|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 2
    for entries, cells in rows:
        size = int(entries.replace(",", ""))
        values, ledger, one, thirty = (float(cell.replace(",", "")) for cell in cells.split("|")[1:])
        sums = [
            Conditions(rounds=rounds, fraction=1.0, sizes=(40,) * 10, recipe=Recipe(), entries=size)
            for rounds in (1, 30)
        ]
        assert SVTPrivacy().released(size) == values
        assert 0.1 + 0.1 * values == pytest.approx(ledger)
        assert [SVTPrivacy().worth(all_of) for all_of in sums] == pytest.approx([one, thirty], rel=5e-3)


def test_what_local_dp_is_worth_is_what_the_page_says():
    text = " ".join(PAGE.read_text().split())

    def worth(epsilon, rounds):
        return gaussian_epsilon(math.sqrt(rounds) * epsilon / math.sqrt(2 * math.log(1.25e5)), 1e-5)

    assert f"0.5 and 1 are worth {worth(0.5, 1):.2f} and {worth(1, 1):.2f}" in text
    assert f"10 is worth {worth(10, 1):.1f}, and 20 is worth {worth(20, 1):.1f}" in text
    thirty = f"{worth(0.5, 30):.2f}, of 1 {worth(1, 30):.2f}, and of 10 {worth(10, 30):.0f}"
    assert f"30 rounds of 0.5 are worth {thirty}" in text
    assert worth(8, 1) < 8 < 9 < worth(9, 1)
