"""What the fuzz tests are made of: commands in this process, damage to files, and values nobody expects."""

import contextlib
import io
import itertools
import json
import math
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from glasshouse import cli

LEAST = 3
"""So many examples are tried however slow the machine is."""

BATCH = 50
"""So many are drawn from one seed."""

UNSEEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""The warnings that Python itself does not show to users."""

CANARY = "canary"
"""A file that exists when code ran that should not."""


def fuzz(examples: st.SearchStrategy[Any], holds: Callable[[Any], None], seconds: float) -> None:
    """Try `holds` on examples until the time is over, and print how many there were.

    Their order is the same in every run, and another one in each with the profile `wide`.
    """
    end, tried, failed = time.monotonic() + seconds, 0, False

    @given(examples)
    @settings(max_examples=BATCH, derandomize=False, phases=[Phase.generate])
    def attempt(example: Any) -> None:
        nonlocal tried, failed
        if not failed and tried >= LEAST and time.monotonic() > end:
            return
        tried += 1
        try:
            holds(example)
        except BaseException:
            failed = True  # hypothesis tries it once more
            raise

    wide = os.environ.get("GLASSHOUSE_FUZZ") == "wide"
    for number in itertools.count(random.randrange(2**32) if wide else 0):
        seed(number)(attempt)()
        if time.monotonic() > end:
            print(f"{tried} examples")
            return


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    def check(self, *codes: int) -> None:
        """It ended with one of these codes; with code 2 it told one line and no more."""
        assert self.code in codes, self
        assert "Traceback" not in self.err, self
        if self.code == 2:
            line = self.err.removesuffix("\n")
            assert line.startswith("glasshouse: "), self
            assert line.isprintable(), self
            assert len(line) < 2500, self
        assert not Path(CANARY).exists(), self


def command(*words: object) -> Ended:
    """Run a command in this process, with the warnings that a user would see."""
    out, err, arguments = io.StringIO(), io.StringIO(), sys.argv
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        form, warnings.showwarning = warnings.formatwarning, _show
        warnings.simplefilter("default")
        for category in UNSEEN:
            warnings.simplefilter("ignore", category)
        try:
            sys.argv = ["glasshouse", *map(str, words)]
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.argv, warnings.formatwarning = arguments, form
    return Ended(code, out.getvalue(), err.getvalue())


def _show(
    message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


@dataclass(frozen=True)
class Damage:
    """What happens to the bytes of a file, at a place that is counted around its length."""

    kind: str
    place: int
    bit: int
    content: bytes

    def __call__(self, whole: bytes) -> bytes:
        place = self.place % max(1, len(whole))
        head, tail = whole[:place], whole[place:]
        return {
            "flip": head + bytes(byte ^ (1 << self.bit) for byte in tail[:1]) + tail[1:],
            "cut": head,
            "insert": head + self.content + tail,
            "overwrite": head + self.content + tail[len(self.content) :],
            "remove": head + tail[len(self.content) :],
            "replace": self.content,
            "zeros": head + bytes(len(tail)),
            "double": whole + whole,
        }[self.kind]


PLACES = st.one_of(st.integers(0, 600), st.integers(0, 10**7), st.integers(-600, -1))
DAMAGES = st.builds(
    Damage,
    st.sampled_from(["flip", "flip", "cut", "insert", "overwrite", "remove", "replace", "zeros", "double"]),
    PLACES,
    st.integers(0, 7),
    st.binary(min_size=1, max_size=40),
)

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(["", "\0", "\n", "\u2028", "\x85# by x 1", "\x1b[31m", "../..", "~", "%s{0}", "é" * 300]),
    st.sampled_from(["x" * 20_000, "(" * 5000, "none+none", "nan", "-" * 999, "hf:", ":", "a:b", "a.npz"]),
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from([2**31, 2**63 - 1, 2**63, 10**30, 10**4000, -(10**4000), 1e308, 5e-324, -0.0]),
)
LEAVES = st.one_of(TEXTS, NUMBERS, st.booleans())
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
DATES = st.dates(min_value=date(1000, 1, 1))


def literals() -> st.SearchStrategy[Any]:
    """Values that can be written in a spec and read back."""
    plain = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS
    )
    return st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner), max_leaves=5)


def written(value: Any) -> str:
    """`value` as Python writes it, however large."""
    return hex(value) if isinstance(value, int) and abs(value) > 2**64 else repr(value)


def toml(value: Any) -> str:
    """`value` in TOML, in one line."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return hex(value) if value > 2**64 else str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml(str(key))} = {toml(inner)}' for key, inner in value.items())}}}"
        case _:
            return str(value)


def configuration(tables: dict[str, Any]) -> str:
    """A configuration as a file holds it, a table after the other."""
    lines = [f"{key} = {toml(value)}" for key, value in tables.items() if not isinstance(value, dict)]
    for name, table in tables.items():
        if isinstance(table, dict):
            lines += [f"[{toml(name)}]", *(f"{toml(key)} = {toml(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


@st.composite
def json_with(draw: st.DrawFn, whole: Any) -> str:
    """The JSON of `whole` with something else in one of its places, which may be what no JSON can hold."""
    places = [*_places(whole)]
    place = draw(st.sampled_from(places))
    values = st.one_of(NESTED, st.none(), st.sampled_from(["\ud800", math.nan, math.inf, 1e300, [[]] * 9]))
    return json.dumps(_replaced(whole, place, draw(values)))


def _places(value: Any, above: tuple[Any, ...] = ()) -> Any:
    yield above
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _places(below, (*above, key))


def _replaced(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[place[0]] = _replaced(value[place[0]], place[1:], other)
    return copied
