"""Who imports whom: data flow one way, and nothing closes a circle."""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import glasshouse

SOURCE = Path(glasshouse.__file__).parent
ORDER = [
    {"errors"},
    {"registry", "options", "reading", "store", "packing", "provenance", "runfolder", "progress"},
    {"data"},
    {"models"},
    {"learning"},
    {"recording"},
    {"measures"},
    {"findings", "exhibits", "scores"},
    {"vetting"},
    {"defences"},
    {"federation"},
    {"access"},
    {"evidence"},
    {"attacks"},
    {"spelling", "verdicts", "showing", "results"},
    {"auditing"},
    {"studies"},
    {"report"},
    {"listing", "naming", "api", "integrations"},
    {
        "command_options",
        "gate_command",
        "inspect_command",
        "record_command",
        "search_command",
        "vet_demo",
        "vet_command",
        "cli",
    },
]
"""The top-level packages and modules, in the order of the flow: each imports only from those further up, and
those on one line only from each other if that closes no circle. The package itself, which gives users the
names they need, stands at the end."""


def imports(file):
    """The modules of this package that a file imports, also inside functions, but not for types alone."""
    waiting, found = [ast.parse(file.read_text())], []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        waiting += ast.iter_child_nodes(node)
    return [name for name in found if name.split(".")[0] == "glasshouse"]


def top_level(name):
    """The top-level package or module that a dotted name lies in; the package itself is `__init__`."""
    part = name.split(".")[1] if "." in name else "__init__"
    return part if (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").exists() else "__init__"


def graph():
    """For each top-level package or module those it imports, each with the files that do."""
    edges = defaultdict(lambda: defaultdict(set))
    for file in sorted(SOURCE.rglob("*.py")):
        path = file.relative_to(SOURCE)
        here = path.parts[0].removesuffix(".py")
        edges[here]  # also those that import nothing
        for name in imports(file):
            if top_level(name) != here:
                edges[here][top_level(name)].add(str(path))
    return edges


PLACES = {name: place for place, names in enumerate(ORDER) for name in names} | {"__init__": len(ORDER)}


def test_every_package_has_its_place_in_the_order():
    assert set(graph()) <= set(PLACES)


def test_packages_import_only_from_those_before_them():
    against = [
        f"{here} -> {there}: {', '.join(sorted(files))}"
        for here, imported in graph().items()
        for there, files in imported.items()
        if PLACES[there] > PLACES[here]
    ]
    assert against == []


def test_no_imports_close_a_circle():
    TopologicalSorter({here: set(imported) for here, imported in graph().items()}).prepare()


def test_the_graph_sees_imports_in_functions_and_not_those_for_types(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import glasshouse.store\n"
        "if TYPE_CHECKING:\n    from glasshouse.report import page\n"
        "def late():\n    from glasshouse.data import split\n"
    )
    assert sorted(imports(file)) == ["glasshouse.data.split", "glasshouse.store"]
