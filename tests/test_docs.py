import ast
import dataclasses
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from cases import question_about_labels
from conftest import make_images, make_plain_model, make_split

from glasshouse import access
from glasshouse.access import QueryAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.auditing.setting import EXAMPLE, Setting
from glasshouse.cli import app
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.findings import Finding
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.listing import REGISTRIES
from glasshouse.verdicts.metrics import families

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXTS = {page: page.read_text() for page in PAGES}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONTRIBUTED = dict(
    re.findall(r"^`(src/[^`]+)`\n\n```python\n(.*?)^```", TEXTS[ROOT / "CONTRIBUTING.md"], re.M | re.S)
)
NEW_FILES = {path: code for path, code in CONTRIBUTED.items() if not (ROOT / path).exists()}
REGISTRY_LINES = {path: code for path, code in CONTRIBUTED.items() if (ROOT / path).exists()}


def page(name):
    return TEXTS[ROOT / "docs" / name]


def table_rows(text):
    """The cells of every table row."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def blocks(language):
    """The fenced blocks of all pages, as parameters named for their place."""
    return [
        pytest.param(code, id=f"{path.name}-{number}")
        for path, text in TEXTS.items()
        for number, (kind, code) in enumerate(BLOCK.findall(text))
        if kind == language and not code.startswith(" ")
    ]


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(ROOT / "docs"))
    yield importlib.import_module("tables")
    sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_name_is_in_the_docs(kind):
    text = "".join(text for path, text in TEXTS.items() if path.parent.name == "docs")
    assert [name for name in REGISTRIES[kind] if f"`{name}`" not in text] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_are_those_of_the_registries(path, tables):
    assert tables.filled(TEXTS[path]) == TEXTS[path], "run: python docs/tables.py"


def test_the_reference_is_that_of_the_source(tables):
    api = importlib.import_module("api")
    assert page("api.md") == api.page(), "run: python docs/api.py"


def test_the_configuration_page_has_every_key_with_its_default():
    told = {row[0].strip("`"): row[1] for row in table_rows(page("configuration.md")) if row[0][0] == "`"}
    keys = {"seed": Setting().seed}
    for table in ("data", "model", "training", "audit"):
        keys |= {f"{table}.{key}": value for key, value in getattr(Setting(), table).model_dump().items()}
    assert told.keys() == keys.keys()
    for key, value in keys.items():
        shown = told[key].strip("`")
        if value is None:
            assert shown == "none", key
        else:
            read = tomllib.loads(f"value = {shown}")["value"]
            assert (tuple(read) if isinstance(read, list) else read) == value, key


def test_the_results_page_has_every_key_of_a_finding_in_order():
    section = page("results.md").partition("## results.json")[2].partition("\n## ")[0]
    told = [row[0].strip("`") for row in table_rows(section) if row[0].startswith("`")]
    assert told == [field.name for field in dataclasses.fields(Finding)]


def test_the_adversaries_page_has_everything_that_can_be_touched():
    text = page("adversaries.md")
    kinds = [kind for kind in vars(access).values() if isinstance(kind, type) and hasattr(kind, "adversary")]
    for kind in kinds:
        (row,) = [row for row in table_rows(text) if row[0] == kind.adversary]
        for name in (kind.__name__, *(field.name for field in dataclasses.fields(kind))):
            assert re.search(rf"`{name}\b", " ".join(row)), (kind, name)
    for field in dataclasses.fields(Knowledge):
        assert f"| `{field.name}` |" in text


def test_the_report_page_explains_every_verdict():
    text = page("reading-the-report.md")
    for family in families().values():
        assert f"**{family.found}**" in text
        assert f"**{family.not_found}**" in text


def test_getting_started_counts_what_the_example_has():
    text = " ".join((ROOT / "docs" / "getting-started.md").read_text().split())
    words = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")
    needs = {need for spec in EXAMPLE.audit.attacks for need in ATTACKS.make(spec).needs}
    adversaries = {need.adversary for need in needs}
    assert f"under each of {words[len(EXAMPLE.audit.defences)]} defences" in text
    assert f"let {words[len(adversaries)]} kinds of adversary" in text
    shadows = words[EXAMPLE.audit.shadows], words[EXAMPLE.audit.adaptive_shadows]
    assert "{} without a defence, and {} under each".format(*shadows) in text


def test_the_readme_names_every_command():
    text = TEXTS[ROOT / "README.md"]
    assert [name for name in commands() if f"`glasshouse {name}" not in text] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", TEXTS[path])):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        goal = (path.parent / file).resolve() if file else path
        assert goal.exists(), f"{path.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", goal.read_text(), re.MULTILINE)
            assert anchor in [_anchor(heading) for heading in headings], f"{path.name}: {target}"


def _anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("code", blocks(""))
def test_commands_shown_are_commands_with_those_options(code):
    for line in code.splitlines():
        for shown in re.findall(r"(?:^|&& |/)glasshouse ([a-z].*?)(?=  |&&|$)", line):
            name, *words = shown.split()
            options = [word for word in words if word.startswith("--")]
            known = {option for parameter in commands()[name].params for option in parameter.opts}
            assert set(options) <= known, line


def commands():
    return typer.main.get_command(app).commands


@pytest.mark.parametrize("code", blocks("python"))
def test_python_shown_imports_what_there_is(code):
    for statement in ast.walk(ast.parse(code)):
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("glasshouse"):
            if str(statement.module).startswith("glasshouse.integrations."):
                continue  # it needs an extra, and so do the tests that run the page
            module = importlib.import_module(str(statement.module))
            assert [alias.name for alias in statement.names if not hasattr(module, alias.name)] == []


def contributed(path):
    """The module that CONTRIBUTING.md shows under `path`."""
    module = types.ModuleType(path)
    sys.modules[path] = module  # dataclasses look their module up
    exec(CONTRIBUTED[path], module.__dict__)
    return module


def test_the_example_attack_finds_those_the_model_is_sure_of():
    attack = contributed("src/glasshouse/attacks/membership/entropy.py").Entropy()
    images = make_images(4)
    sureness = torch.tensor([0.4, 0.6, 0.8, 1.0])

    def probabilities(x):
        others = (1 - sureness[: len(x)]) / 3
        return torch.cat([sureness[: len(x), None], others[:, None].expand(-1, 3)], dim=1)

    knowledge = Knowledge(images, images)
    evidence = attack.run(QueryAccess(probabilities), knowledge, torch.Generator())
    assert (np.diff(evidence.scores) > 0).all()
    assert evidence.decisions.tolist() == [False, False, True, True]


def test_the_example_evidence_is_judged_against_the_labels_that_clients_hold():
    kind = contributed("src/glasshouse/evidence/majority.py").MajorityClasses
    question = question_about_labels([[5, 1, 0, 0], [0, 2, 4, 0], [9, 0, 8, 0]])
    (score,) = kind({0: 0, 1: 1, 2: 0}).judge(question).scores
    assert score.estimate.value == pytest.approx(2 / 3)
    assert score.estimate.n == 3
    assert score.chance == pytest.approx(2 / 3)  # class 0 is the largest of two clients and of all


def test_the_example_defence_sends_multiples_of_its_step_and_leaves_buffers_alone():
    defence = contributed("src/glasshouse/defences/rounding.py").Rounding(step=0.25)
    layout = Layout(("weight", "running_mean"), ((3,), (2,)), trainable=3)
    sent = defence.on_update(torch.tensor([0.3, -0.6, 0.1, 0.3, 0.1]), layout, torch.Generator())
    torch.testing.assert_close(sent, torch.tensor([0.25, -0.5, 0.0, 0.3, 0.1]))


def test_the_example_model_has_as_many_parameters_as_it_says():
    model = contributed("src/glasshouse/models/linear.py").softmax_regression((1, 28, 28), 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 7850


def test_the_example_strategy_takes_adagrads_steps_and_remembers_them_when_continued(engine, tmp_path):
    kind = contributed("src/glasshouse/federation/strategies/fedadagrad.py").FedAdagrad
    start = read_vector(make_plain_model())

    def vector(strategy, rounds, record=None):
        federation = Federation(make_plain_model(), make_split(), Recipe(), engine=engine, strategy=strategy)
        return federation.run(start, Plan(rounds=rounds), record=record).vector

    moved = vector(FedAvg(), 1) - start
    expected = start + 0.5 * moved / (moved.abs() + 1e-3)
    torch.testing.assert_close(vector(kind(server_lr=0.5), 1), expected)
    straight = vector(kind(), 3)
    vector(kind(), 1, Record(tmp_path))
    assert torch.equal(vector(kind(), 3, Record(tmp_path)), straight)


MAJORITY_ATTACK = """
from dataclasses import dataclass

from glasshouse.access import UpdateAccess
from glasshouse.attacks.attack import Attack
from glasshouse.attacks.labels.counts import LabelCountsFromUpdates
from glasshouse.evidence.majority import MajorityClasses


@dataclass(frozen=True, kw_only=True)
class MajorityFromUpdates(Attack):
    '''Names the class that each client holds most of, by the labels counted in its updates.'''

    family = "majority"
    needs = (UpdateAccess,)

    def run(self, access, knowledge, rng):
        counted = LabelCountsFromUpdates().run(access, knowledge, rng).counted
        return MajorityClasses({labels.clients[0]: int(labels.counts.argmax()) for labels in counted})
"""
"""An attack whose evidence is of the kind that the page adds."""

DRIVER = """
import json
from glasshouse import audit
from glasshouse.auditing.setting import make_setting
from glasshouse.evidence import KINDS
from glasshouse.listing import REGISTRIES, listing
from glasshouse.studies.run import run_study

setting = {
    "data": {"name": "street-signs", "clients": 3},
    "model": {"name": "softmax-regression"},
    "training": {"strategy": "fedadagrad(server_lr=0.5)", "rounds": 2},
    "audit": {
        "attacks": ["entropy(quantile=0.4)", "majority-from-updates"],
        "defences": ["rounding(step=0.1)"],
        "central": False,
    },
}
audited = audit(make_setting(setting), out="audit", workers=1, quiet=True)
studied = run_study("epochs", out="study", workers=1, quiet=True)
findings = [finding.row() for finding in (*audited.findings, *studied.findings)]
names = {kind: list(listing(kind)) for kind in REGISTRIES} | {"evidence": list(KINDS)}
print(json.dumps({"names": names, "findings": findings}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the source with all that CONTRIBUTING.md shows put where it says."""
    folder = tmp_path_factory.mktemp("copy")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path, code in NEW_FILES.items():
        (folder / path).write_text(code)
    for path, line in REGISTRY_LINES.items():
        assert line.count("\n") == 1
        register(folder / path, line)
    (folder / "src/glasshouse/attacks/labels/majority.py").write_text(MAJORITY_ATTACK)
    name = '"majority-from-updates": "glasshouse.attacks.labels.majority:MajorityFromUpdates",'
    register(folder / "src/glasshouse/attacks/__init__.py", f"        {name}\n")
    return folder


def register(file, line):
    """Put a line at the end of the registry in the file."""
    before, end, after = file.read_text().partition("    },\n")
    file.write_text(before + line + end + after)


def test_what_contributing_shows_is_one_file_and_one_line_each(copy, tables):
    guided = set(REGISTRIES) - {"channels", "partitions"} | {"evidence"}
    assert len(NEW_FILES) == len(REGISTRY_LINES) == len(guided)
    signs = make_images(240)
    (copy / "data" / "street-signs").mkdir(parents=True)
    np.savez(copy / "data" / "street-signs" / "signs.npz", x=signs.x.numpy(), y=signs.y.numpy())
    environment = {"PYTHONPATH": str(copy / "src"), "GLASSHOUSE_DATA": str(copy / "data")}
    command = [sys.executable, "-c", DRIVER]
    ran = subprocess.run(command, cwd=copy, env=os.environ | environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(ran.stdout)

    names = [re.findall(r'"(.+?)":', line)[0] for line in REGISTRY_LINES.values()]
    listed = [line.split()[0] for lines in shown["names"].values() for line in lines]
    assert set(names) <= set(listed)
    found = {(row["source"], row["attack"], row["defence"]) for row in shown["findings"]}
    assert ("audit", "entropy(quantile=0.4)", "rounding(step=0.1)") in found
    assert ("epochs", "loss-threshold", "none") in found
    majority = [row for row in shown["findings"] if row["family"] == "majority"]
    assert [(row["metric"], row["adversary"], row["n"]) for row in majority] == 2 * [
        ("majority-accuracy", "curious server", 3)
    ]
    assert "names the class that a client holds most of" in (copy / "audit" / "report.html").read_text()
    assert {row["cell"] for row in shown["findings"] if row["source"] == "epochs"} == {
        "epochs-1",
        "epochs-10",
    }
    assert "`entropy(quantile=0.4)`" in tables.results_table(copy / "audit")
    assert "rounding 0.1" in tables.price_table(copy / "audit")


@pytest.mark.parametrize("words", [("check",), ("format", "--check")])
def test_what_contributing_shows_keeps_to_the_style(copy, words):
    command = [sys.executable, "-m", "ruff", *words, "--no-cache", *CONTRIBUTED]
    checked = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
