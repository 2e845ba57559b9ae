"""A run folder, read and checked: the rows, the curves and what else the page is built from."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from glasshouse.errors import BadInput
from glasshouse.exhibits import Chart, Exhibits, Frozen, StudyTable
from glasshouse.findings import Finding
from glasshouse.spelling import slug
from glasshouse.store import read_text
from glasshouse.verdicts.claims import Verdict

Parsed = TypeVar("Parsed")


class StudyPage(Frozen):
    """What `study.json` holds."""

    title: str = ""
    summary: str = ""
    verdicts: tuple[Verdict, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[StudyTable, ...] = ()


class Run(Frozen):
    """Everything a page is built from."""

    folder: Path
    rows: tuple[Finding, ...]
    curves: Exhibits = Exhibits()
    study: StudyPage | None = None
    config: str | None = None
    environment: dict[str, str] | None = None

    @property
    def clients(self) -> int | None:
        """How many clients the configuration names, wherever it does."""
        named = next(_values_of("clients", _toml(self.config)), None)
        return named if isinstance(named, int) else None


def read_run(folder: Path) -> Run:
    """Read the run in `folder`; only `results.json` must be there."""
    results = folder / "results.json"
    if not results.is_file():
        raise BadInput(f"{folder}: no results.json there; give a folder written by glasshouse audit or study")
    rows = _parsed(results, tuple[Finding, ...])
    if not rows:
        raise BadInput(f"{results}: no findings in it; run the audit or study again")
    curves, study, environment = (folder / f"{name}.json" for name in ("curves", "study", "environment"))
    run = Run(
        folder=folder,
        rows=rows,
        curves=_parsed(curves, Exhibits) if curves.is_file() else Exhibits(),
        study=_parsed(study, StudyPage) if study.is_file() else None,
        config=read_text(folder / "config.toml"),
        environment=_parsed(environment, dict[str, str]) if environment.is_file() else None,
    )
    for picture in run.curves.gallery:
        for path in (picture.original, picture.result):
            if not (folder / path).resolve().is_relative_to(folder.resolve()):
                raise BadInput(f"{curves}: image {path!r} lies outside the run folder; copy it inside")
    for roc in run.curves.roc:
        if len(roc.fpr) != len(roc.tpr):
            raise BadInput(
                f"{curves}: ROC of {roc.attack} has {len(roc.fpr)} fpr and {len(roc.tpr)} tpr values; "
                "give one tpr for each fpr"
            )
    if run.study:
        _check_study(study, run.study)
    return run


def _check_study(path: Path, study: StudyPage) -> None:
    for what, named in (("chart", study.charts), ("table", study.tables)):
        names = [slug(one.name) for one in named]
        for name in names:
            if not name or names.count(name) > 1:
                raise BadInput(f"{path}: {what} name {name!r} is empty or used twice; give each its own")
    rule = "give one for each, null where there is none"
    for chart in study.charts:
        for series in chart.series:
            for numbers in (series.values, series.low or series.values, series.high or series.values):
                if len(numbers) != len(chart.categories):
                    raise BadInput(
                        f"{path}: series {series.name!r} of chart {chart.name!r} has {len(numbers)} numbers "
                        f"for {len(chart.categories)} categories; {rule}"
                    )
    for table in study.tables:
        for row in table.rows:
            if len(row) != (columns := len(table.columns)):
                counts = f"{len(row)} cells for {columns} columns"
                raise BadInput(f"{path}: a row of table {table.name!r} has {counts}; {rule}")


def _parsed(path: Path, kind: type[Parsed]) -> Parsed:
    try:
        return TypeAdapter(kind).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not readable as JSON ({error}); run the audit or study again") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise BadInput(f"{path}: at {place}: {first['msg']}; run the audit or study again") from error


def _toml(text: str | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text or "")
    except tomllib.TOMLDecodeError:
        return {}  # the page still shows the text as it is


def _values_of(key: str, tree: dict[str, Any]) -> Iterator[Any]:
    if key in tree:
        yield tree[key]
    for branch in tree.values():
        if isinstance(branch, dict):
            yield from _values_of(key, branch)
