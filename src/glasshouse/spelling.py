"""How numbers, intervals, lists and names are spelled."""

import re
import zlib
from collections.abc import Sequence

from glasshouse.defences import split_defences

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
LONGEST = 120
"""Characters of a slug; a file system takes 255 for a name."""


def of_hundred(share: float) -> str:
    """A share as a count: 0.571 is "57 of 100"."""
    if 0 < share < 0.005:
        return "fewer than 1 of 100"
    if 0.995 <= share < 1:
        return "more than 99 of 100"
    return f"{share * 100:.0f} of 100"


def number(value: float | None, unit: str = "") -> str:
    """A number for experts: three decimals for shares, one for large ones and for dB, a dash when missing."""
    return DASH if value is None else f"{_digits(value, unit)} {unit}".strip()


def interval(low: float | None, high: float | None, unit: str = "") -> str:
    """An interval for experts, open where it has one end, a dash when it has none."""
    if low is not None and high is not None:
        return f"{_digits(low, unit)} to {number(high, unit)}"
    if low is not None:
        return f"at least {number(low, unit)}"
    return DASH if high is None else f"at most {number(high, unit)}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def defence_words(spec: str | None) -> str:
    """A short name: `pruning(fraction=0.95)` is "pruning 0.95", `none` is "undefended"."""
    if not spec or spec == "none":
        return "undefended"
    return " + ".join(_one_defence(part) for part in split_defences(spec))


def slug(*parts: str) -> str:
    """A name for a file or an id: letters, digits and hyphens; a long one is cut, and ends in a digest."""
    name = "-".join(filter(None, (re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts)))
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{zlib.crc32(name.encode()):08x}"


def _digits(value: float, unit: str) -> str:
    text = f"{value:.1f}" if abs(value) >= 10 or unit == "dB" else f"{value:.3f}"
    return text.replace("-", MINUS)


def _one_defence(spec: str) -> str:
    name, _, inside = spec.strip().partition("(")
    options = [option.strip() for option in inside.rstrip(")").split(",") if option.strip()]
    if len(options) == 1:
        options = [options[0].partition("=")[2] or options[0]]
    return " ".join([name.replace("-", " ").strip(), *options])
