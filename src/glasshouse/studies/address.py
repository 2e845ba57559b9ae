"""The names of a study's cells: formatted in one place, and parsed by the same object."""

import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Any, ClassVar, Self

EXPRESSIONS: dict[type, str] = {str: "[^/]+", int: r"\d+", float: r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"}
"""What a field of each type may look like in a name; no field reaches beyond a slash."""


@dataclass(frozen=True)
class Address:
    """The place of a cell in its grid, which `pattern` spells with the fields of the subclass.

    Fields are of type `str`, `int` or `float`, and may have a format, as in a format string.

    >>> @dataclass(frozen=True)
    ... class Batch(Address):
    ...     pattern: ClassVar[str] = "table-4/{network}/{share:g}/{batch}"
    ...     network: str
    ...     share: float
    ...     batch: int
    >>> name = str(Batch("cnn", 0.1, 64))
    >>> name
    'table-4/cnn/0.1/64'
    >>> Batch.parse(name) == Batch("cnn", 0.1, 64)
    True
    >>> Batch.parse("table-4/cnn/0.1/all") is None
    True
    >>> [address.batch for address in Batch.matching(["table-4/cnn/1/64", "figure-6/cnn", "table-4/vit/1/8"])]
    [64, 8]
    """

    pattern: ClassVar[str]

    def __str__(self) -> str:
        return self.pattern.format(**vars(self))

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The address with this name, or none where the name is not spelt like one."""
        expression, types = _parser(cls)
        match = expression.fullmatch(name)
        if match is None:
            return None
        address = cls(**{field: types[field](text) for field, text in match.groupdict().items()})
        return address if str(address) == name else None

    @classmethod
    def matching(cls, names: Iterable[str]) -> list[Self]:
        """The addresses among some names, each once and in their order."""
        return list(dict.fromkeys(address for name in names if (address := cls.parse(name)) is not None))


def _parser(address: type[Address]) -> tuple[re.Pattern[str], dict[str, Any]]:
    """The expression that a name must match, a group for each field, and the fields' types."""
    types = typing.get_type_hints(address)
    parts = []
    for text, field, _, _ in Formatter().parse(address.pattern):
        parts.append(re.escape(text))
        if field is not None:
            parts.append(f"(?P<{field}>{EXPRESSIONS[types[field]]})")
    return re.compile("".join(parts)), types
