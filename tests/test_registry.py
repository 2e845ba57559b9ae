import sys

import pytest

from glasshouse.attacks import ATTACKS
from glasshouse.data.registry import DATA, PARTITIONS
from glasshouse.defences import DEFENCES, make_defences
from glasshouse.errors import BadInput
from glasshouse.evidence import KINDS
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.models.registry import MODELS
from glasshouse.registry import Registry, import_function, import_users, newly_imported, parse_spec
from glasshouse.studies import STUDIES

THINGS = Registry(
    "thing", {"fraction": "fractions:Fraction", "ordered": "collections:OrderedDict"}, base="builtins:object"
)


def test_a_name_is_imported_when_it_is_asked_for():
    assert THINGS.make("fraction(numerator=1, denominator=3)").denominator == 3


def test_a_users_own_object_goes_by_its_place(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    def __init__(self, *, size=1):\n        self.size = size\n"
    )
    monkeypatch.chdir(tmp_path)
    assert THINGS.make("mine:Mine(size=4)").size == 4


@pytest.mark.parametrize(("source", "spec", "words"), [
    ("", "absent:Mine", "No module named 'absent'; run from the folder that holds it"),
    ("", "broken:Nothing", "no attribute 'Nothing'; write it as package.module:name"),
    ("1 / 0", "broken:Mine", "importing it raised ZeroDivisionError: division by zero; repair it"),
    ("def (", "broken:Mine", "importing it raised SyntaxError"),
])  # fmt: skip
def test_a_users_object_that_cannot_be_imported_is_named_with_a_remedy(
    tmp_path, monkeypatch, source, spec, words
):
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "broken", raising=False)
    with pytest.raises(BadInput, match=words):
        THINGS.load(spec)


def test_an_unknown_name_suggests_the_nearest_or_lists_them_all():
    with pytest.raises(BadInput, match="unknown thing 'fractoin'; did you mean 'fraction'"):
        THINGS.load("fractoin")
    with pytest.raises(BadInput, match="unknown thing 'xyz'; known: fraction, ordered"):
        THINGS.load("xyz")


def test_arguments_are_literals_only():
    assert parse_spec("a(x=1, y='b', z=[1, 2])", "thing") == ("a", {"x": 1, "y": "b", "z": [1, 2]})
    for wrong in ("a(1)", "a(x=open('f'))", "a(x=1", "a(x=1); b(y=2)"):
        with pytest.raises(BadInput, match="cannot be read"):
            parse_spec(wrong, "thing")


UNREADABLE = [
    "a(x={[]:1})", f"a(x={'-' * 9000}1)", f"a(x={'[' * 5000})", f"a(x={'+'.join('1' * 4000)})",
    f"a(x=b{'.b' * 4000})", "a(x=\0)", "a(**x)", "a(*x)", "a(x=1, x=2)", "a(x=1)(y=2)", f"a(x={'9' * 5000})",
    "a(x='\ud800')", "a(x=lambda: 1)", "a(x=f'{1}')", "a(x=__import__('os'))", "a(x:=1)",
]  # fmt: skip


@pytest.mark.parametrize("spec", UNREADABLE)
def test_a_spec_that_cannot_be_read_is_refused_in_one_short_line(spec):
    with pytest.raises(BadInput, match="cannot be read; write it as a name") as refused:
        parse_spec(spec, "thing")
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("spec", ["a" * 100_000, f"a(x={'-' * 100_000}1)", "m:" + "a" * 100_000])
def test_a_spec_longer_than_any_could_be_is_refused(spec):
    for read in (ATTACKS.make, make_defences):
        with pytest.raises(BadInput, match="too long; a name has at most 10000 characters") as refused:
            read(spec)
        assert len(str(refused.value)) < 300


@pytest.fixture
def users(tmp_path, monkeypatch):
    """Writes a module of the user's into the current folder, and gives its name."""

    def written(source):
        name = f"users_{tmp_path.name}".replace("-", "_")
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.chdir(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return written


FAMILIES = [ATTACKS, DEFENCES, STRATEGIES, CHANNELS, STUDIES]


@pytest.mark.parametrize("registry", FAMILIES, ids=lambda registry: registry.kind)
def test_nothing_but_a_class_of_the_family_is_called_whatever_its_arguments(registry, users, tmp_path):
    name = users(
        "from os import mkdir\n"
        "def function(**options): mkdir('called')\n"
        "class Class:\n    def __init__(self, **options): mkdir('called')\n"
        "class Callable:\n    def __call__(self, **options): mkdir('called')\n"
        "instance = Callable()\n"
    )
    for attribute in ("mkdir", "function", "Class", "instance"):
        for options in ("", "(path='called')", "(mode=511)"):
            with pytest.raises(BadInput, match=f"is of another kind; derive a class from {registry.base}"):
                registry.make(f"{name}:{attribute}{options}")
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("registry", FAMILIES, ids=lambda registry: registry.kind)
@pytest.mark.parametrize("spec", [
    "os:system(command='mkdir called')", "subprocess:run(args='mkdir called', shell=True)",
    "os.path:join", "builtins:exec(source='1')", "posix:mkdir(path='called')", "antigravity:fly",
])  # fmt: skip
def test_pythons_own_modules_are_refused_before_they_are_imported(registry, spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="is of Python's standard library"):
        registry.make(spec)
    assert not (tmp_path / "called").exists()
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("registry", [MODELS, DATA, PARTITIONS, KINDS], ids=lambda registry: registry.kind)
def test_a_registry_without_a_family_imports_nothing_of_the_users(registry, users):
    name = users("raise RuntimeError")
    with pytest.raises(BadInput, match=f"unknown {registry.kind}"):
        registry.load(f"{name}:anything")
    assert name not in sys.modules


@pytest.mark.parametrize("path", ["a b:c", ":c", "a:", "a:b:c", ".a:b", "a..b:c", "a\nb:c", "a/b:c", "a:b.c"])
def test_what_is_no_dotted_name_is_not_imported(path):
    with pytest.raises(BadInput, match=r"cannot be imported; write it as package\.module:name"):
        import_users(path, "thing")


def test_only_a_function_written_in_python_is_taken_for_one(users):
    name = users(
        "from os import getcwd\ndef mine(): return 7\n"
        "class Mine:\n    def of(self): return 7\nof = Mine().of\n"
    )
    assert import_function(f"{name}:mine", "data")() == 7
    for attribute in ("getcwd", "Mine", "of", "__name__"):
        with pytest.raises(BadInput, match="; name a function"):
            import_function(f"{name}:{attribute}", "data")


def test_each_module_of_the_users_that_was_imported_is_told_once_with_its_file(users, tmp_path):
    newly_imported()
    name = users("class Mine: pass\n")
    import_users(f"{name}:Mine", "thing")
    import_users(f"{name}:Mine", "thing")
    import_users("glasshouse.attacks.attack:Attack", "thing")
    assert newly_imported() == [f"imported {name} from {tmp_path / name}.py, which ran its code"]
    assert newly_imported() == []


@pytest.mark.parametrize("source", [
    "import sys\nsys.exit(3)", "class Mine:\n    def __init__(self): raise SystemExit(3)",
])  # fmt: skip
def test_a_users_code_that_exits_is_refused_in_one_line(users, source):
    name = users(source)
    with pytest.raises(BadInput, match="raised SystemExit: 3; repair it"):
        THINGS.make(f"{name}:Mine")


def test_what_a_user_presses_is_no_bad_input(users):
    name = users("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        THINGS.load(f"{name}:Mine")


def test_a_long_message_of_many_lines_becomes_one_short_line(users):
    name = users(
        "class Mine:\n    def __init__(self): raise ValueError('two\\nlines \\x1b[31m' + 'x' * 9000)"
    )
    with pytest.raises(BadInput, match="raised ValueError: two lines") as refused:
        THINGS.make(f"{name}:Mine")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


def test_what_a_users_class_raises_becomes_one_line(tmp_path, monkeypatch):
    (tmp_path / "raising.py").write_text(
        "class Mine:\n    def __init__(self):\n        raise ValueError('no')\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="raised ValueError: no; repair it"):
        THINGS.make("raising:Mine")
