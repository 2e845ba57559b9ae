"""What was measured, with its interval, in a cell of a table and on a chart."""

from collections.abc import Sequence
from typing import Protocol

from glasshouse.exhibits import Series
from glasshouse.spelling import DASH


class Ranged(Protocol):
    """A value and the ends of its interval, each null where there is none."""

    @property
    def value(self) -> float | None: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


def bracketed(found: Ranged | None, form: str = ".3f") -> str:
    """A value and its interval as short as can be, `0.712 [0.698, 0.726]`, or a dash; `form` is a format."""
    if found is None or found.value is None:
        return DASH
    value = format(found.value, form)
    if found.low is None or found.high is None:
        return value
    return f"{value} [{found.low:{form}}, {found.high:{form}}]"


def series_of(name: str, found: Sequence[Ranged | None]) -> Series:
    """What was found for each category of a chart, nothing where it is null."""
    return Series(
        name=name,
        values=tuple(None if own is None else own.value for own in found),
        low=tuple(None if own is None else own.low for own in found),
        high=tuple(None if own is None else own.high for own in found),
    )
