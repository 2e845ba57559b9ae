"""What was measured, with its interval, in a cell of a table and on a chart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from glasshouse.exhibits import Chart, Series, StudyTable
from glasshouse.measures.estimate import Estimate
from glasshouse.spelling import DASH
from glasshouse.studies.measured import Measured

T = TypeVar("T")


def bracketed(estimate: Estimate | None, form: str = ".3f") -> str:
    """A value and its interval as short as can be, `0.712 [0.698, 0.726]`, or a dash; `form` is a format."""
    if estimate is None or estimate.value is None:
        return DASH
    value = format(estimate.value, form)
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{estimate.low:{form}}, {estimate.high:{form}}]"


def series_of(name: str, estimates: Sequence[Estimate | None]) -> Series:
    """An estimate for each category of a chart, nothing where it is null."""
    return Series(
        name=name,
        values=tuple(None if estimate is None else estimate.value for estimate in estimates),
        low=tuple(None if estimate is None else estimate.low for estimate in estimates),
        high=tuple(None if estimate is None else estimate.high for estimate in estimates),
    )


def seeds_note(measured: Measured) -> str:
    """What the intervals of a chart are, where there are several seeds."""
    count = len(measured.seeds)
    return f"Means over {count} seeds with their 95% interval." if count > 1 else ""


def table(
    name: str, title: str, columns: Iterable[str], rows: Iterable[Sequence[str | int]], note: str = ""
) -> StudyTable:
    """A table of text."""
    return StudyTable(name=name, title=title, columns=tuple(columns), rows=tuple(map(tuple, rows)), note=note)


def filled(
    name: str,
    title: str,
    columns: Mapping[str, Callable[[T], str | int]],
    rows: Iterable[T],
    note: str = "",
) -> StudyTable:
    """A table with a row for each of `rows`; below its heading each column says what stands there."""
    cells = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
    return StudyTable(name=name, title=title, columns=tuple(columns), rows=cells, note=note)


def chart(
    name: str,
    title: str,
    axes: tuple[str, str],
    categories: Iterable[str],
    series: Iterable[Series],
    **more: Any,
) -> Chart:
    """A chart with these words on its axes; `more` are further fields of `Chart`."""
    x, y = axes
    return Chart(name=name, title=title, x=x, y=y, categories=tuple(categories), series=tuple(series), **more)
