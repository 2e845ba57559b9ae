import pytest

from glasshouse.errors import BadInput
from glasshouse.registry import Registry, parse_spec

THINGS = Registry("thing", {"fraction": "fractions:Fraction", "ordered": "collections:OrderedDict"})


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


@pytest.mark.parametrize("spec", ["os:getcwd", "collections:OrderedDict", "decimal:Decimal"])
def test_an_object_of_another_kind_is_refused(spec):
    with pytest.raises(BadInput, match="derive it from fractions:Fraction"):
        Registry("thing", {}, base="fractions:Fraction").make(spec)


def test_what_a_users_class_raises_becomes_one_line(tmp_path, monkeypatch):
    (tmp_path / "raising.py").write_text(
        "class Mine:\n    def __init__(self):\n        raise ValueError('no')\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="raised ValueError: no; repair it"):
        THINGS.make("raising:Mine")
