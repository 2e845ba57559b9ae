"""What the pages about results and comparing show runs, as it stands there, on runs like those they name."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import glasshouse
from glasshouse import Setting
from glasshouse.auditing.run import run_audit
from glasshouse.scores import INDEX, LABELS

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two audits with several adversaries and defences, and an attack that two of the adversaries run."""
    home = tmp_path_factory.mktemp("home")
    for name, rounds in {"before": 1, "after": 2}.items():
        setting = Setting(
            data={"clients": 3, "members": 60, "nonmembers": 60, "auxiliary": 30, "test": 60},
            model={"name": "mlp"},
            training={"rounds": rounds, "epochs": 2, "batch_size": 10, "lr": 0.1},
            audit={
                "attacks": ("loss-threshold", "gap", "gradient-alignment", "label-counts"),
                "defences": ("clipping(norm=1.0)",),
                "adaptive": False,
                "curvature": 0,
            },
        )
        run_audit(setting, out=home / "runs" / name, workers=1, quiet=True)
    shutil.copytree(home / "runs" / "before", home / "runs" / "audit-digits-1")
    return home


def run_blocks(page, runs, monkeypatch):
    """Run a page's blocks one after another, as its reader would."""
    monkeypatch.chdir(runs)
    names = {}
    for block in BLOCK.findall((DOCS / page).read_text()):
        exec(compile(block, page, "exec"), names)
    return names


def test_every_snippet_of_the_results_page_runs(runs, monkeypatch, capsys):
    pytest.importorskip("pandas")

    def stored(*, out):
        return glasshouse.read_results("runs/audit-digits-1")

    monkeypatch.setattr(glasshouse, "audit", stored, raising=False)
    names = run_blocks("results.md", runs, monkeypatch)
    assert len(names["found"]) == len(names["results"].findings)
    pivot = names["auc"].pivot_table(index=["adversary", "defence"], columns="attack", values="value")
    assert ("outsider", "none") in pivot.index
    assert names["results"].scores("loss-threshold")["decision"].shape == (120,)
    rows = [row for row in names["results"].findings if row.attack == "loss-threshold"]
    balanced = [row.value for row in rows if (row.metric, row.defence) == ("balanced-accuracy", "none")]
    assert [names["accuracy"]] == pytest.approx(balanced)  # as many members as others
    assert "outsider: " in capsys.readouterr().out


def test_every_snippet_of_the_comparing_page_runs(runs, monkeypatch, capsys):
    names = run_blocks("comparing.md", runs, monkeypatch)
    assert [one.name for one in names["compared"].differing] == ["training.rounds"]
    said = capsys.readouterr().out
    assert "before and after differ in training.rounds (1 and 2)." in said
    assert "training.rounds ('1', '2')" in said
    assert "outsider, undefended, AUC: loss-threshold" in said


def test_the_results_page_has_every_table_and_column_that_is_kept(runs):
    section = (DOCS / "results.md").read_text().partition("## scores.npz")[2].partition("\n## ")[0]
    told = {
        match[1]: set(re.findall(r"`(\w+)`", match[2]))
        for match in re.finditer(r"^\| `([\w-]+)` \|[^|]*\|(.*)\|$", section, re.MULTILINE)
    }
    with np.load(runs / "runs" / "audit-digits-1" / "scores.npz", allow_pickle=False) as file:
        for name in set(file.files) - {INDEX}:
            assert set(file[name].dtype.names) - {"entry"} <= told[name], name
        for field in file[INDEX].dtype.names:
            assert f"`{field}`" in section
    assert set(told) >= {"membership", "batch-membership", "source", "evasion", "reconstruction", "accuracy"}
    assert set(LABELS) <= set(re.findall(r"`(\w+)`", section))


def test_the_comparing_page_explains_every_verdict():
    text = (DOCS / "comparing.md").read_text()
    for verdict in ("more with B", "less with B", "higher with B", "lower with B", "may be luck"):
        assert verdict in text
    assert "**no difference shown**" in text
    assert "**not judged**" in text
