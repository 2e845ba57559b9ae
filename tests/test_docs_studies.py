"""The pages of studies: their verdicts are those of the findings beside them, and their sentences agree."""

import importlib.util
import re
from pathlib import Path

import pytest

from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate
from glasshouse.studies import STUDIES
from glasshouse.verdicts.claims import Claim, Part, settle

DOCS = Path(__file__).parent.parent / "docs"
MEASURED = sorted(file.stem for file in (DOCS / "studies" / "results").glob("*.csv"))
SUMMARY = "## What it says"


def _maker():
    spec = importlib.util.spec_from_file_location("studies_maker", DOCS / "studies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = _maker()


def disagreements(page: str) -> list[str]:
    """Where the summary of a page says something else than its table of claims, or nothing."""
    verdicts = dict(re.findall(r"^\| (\w+)\. .*?\*\*([a-z ]+)\*\* \|", page, re.MULTILINE))
    _, found, rest = page.partition(f"{SUMMARY}\n")
    bullets = re.split(r"^- ", rest.partition("\n## ")[0], flags=re.MULTILINE)[1:] if found else []
    said = {}
    wrong = []
    tables = "".join(line for line in page.splitlines(keepends=True) if line.startswith("|"))
    for bullet in bullets:
        head = re.match(r"\*\*(\w+)\. .*: ([a-z ]+)\.\*\*", bullet.replace("\n", " "))
        if head is None:
            wrong.append(f"no claim and verdict at the start of {bullet[:60]!r}")
            continue
        said[head[1]] = head[2]
        figures = re.findall(r"\d+\.\d+", bullet)
        wrong += [
            f"{head[1]} says {figure}, which no table has" for figure in figures if figure not in tables
        ]
    for number, verdict in verdicts.items():
        if number.isdigit() and said.get(number) != verdict:
            wrong.append(f"claim {number} is {verdict} in the table, {said.get(number)} in the summary")
    return wrong + [f"the summary speaks of a claim {number}" for number in said if number not in verdicts]


@pytest.mark.parametrize("name", MEASURED)
def test_the_verdicts_of_a_page_are_those_of_its_findings(name):
    page = (DOCS / "studies" / f"{name}.md").read_text()
    verdicts = STUDIES.make(name).conclude(maker.read_findings(name))
    assert maker.claims(verdicts) in page, "run `python docs/studies.py`"


@pytest.mark.parametrize("name", MEASURED)
def test_the_summary_of_a_page_agrees_with_its_tables(name):
    assert disagreements((DOCS / "studies" / f"{name}.md").read_text()) == []


PAGE = """
| claim | in the paper | printed | measured | verdict | why they differ |
| --- | --- | --- | --- | --- | --- |
| 1. It rises | section 2 | 0.5 | +0.123 [+0.1, +0.2], n = 10 | **holds** | - |
| 2. It falls | section 3 | - | +0.2 | **refuted** | - |

## What it says

- **1. It rises: holds.** By 0.123.
- **2. It falls: refuted.** It rises,
  by 0.2.

## More
"""


def test_a_summary_that_agrees_passes():
    assert disagreements(PAGE) == []


@pytest.mark.parametrize(("old", "new", "complaint"), [
    ("It rises: holds", "It rises: refuted", "claim 1 is holds in the table, refuted"),
    ("By 0.123", "By 0.456", "0.456, which no table has"),
    ("- **2. It falls: refuted.** It rises,\n  by 0.2.\n", "", "claim 2 is refuted in the table, None"),
    ("- **2. It falls: refuted.**", "- All is well.", "no claim and verdict"),
    ("**2. It falls: refuted.**", "**3. It falls: refuted.**", "speaks of a claim 3"),
])  # fmt: skip
def test_a_summary_that_disagrees_with_its_table_is_found(old, new, complaint):
    assert any(complaint in wrong for wrong in disagreements(PAGE.replace(old, new)))


def test_findings_come_back_from_the_table_as_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr(maker, "RESULTS", tmp_path)
    common = {"source": "clients", "family": "utility", "metric": "test-accuracy", "model": "mlp"}
    whole = Finding(**common, cell="a", value=0.25, low=0.125, high=0.5, n=8, seed=0, attack="x(a=1, b='c')")
    missing = Finding(**common, cell="b", value=None, reason="it diverged", seed=1)
    assert maker.write_findings("clients", [whole, missing]) == [whole, missing]
    other = Finding(**common, cell="b", value=0.5, seed=1)
    assert maker.write_findings("clients", [other]) == [whole, other]


def test_the_papers_claims_stand_alone_and_the_rest_folds_away():
    part = Part("here", "gain", [Estimate(0.5, 0.4, 0.6, 10)], ["a/b"])
    text = maker.claims(
        settle([Claim("1. It rises", [part], "section 2", "0.4"), Claim("A. More", [part], own=True)])
    )
    first, _, rest = text.partition("<details>")
    assert "| 1. It rises | section 2 | 0.4 |" in first
    assert "A. More" not in first
    assert "A. More" in rest
    assert "Bonferroni" in first
