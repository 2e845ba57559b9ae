"""A run folder, read and checked: the rows, the curves and what else the page is built from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from glasshouse.errors import BadInput
from glasshouse.exhibits import LARGEST, Chart, Exhibits, Frozen, StudyTable
from glasshouse.findings import Finding
from glasshouse.reading import parse_toml, read_file
from glasshouse.results import CHECKED, seeds_share_records
from glasshouse.scores import SCORES
from glasshouse.spelling import slug
from glasshouse.store import hashed
from glasshouse.verdicts.claims import Verdict
from glasshouse.verdicts.limits import Limits, read_limits

Parsed = TypeVar("Parsed")

LONGEST = 2**28
"""Bytes of a file that a page is made of."""

MOST_ROWS = 100_000
"""Findings that fit on a page which a browser can open."""


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

    @property
    def same_records(self) -> bool:
        """Whether every seed was asked about the same records."""
        return seeds_share_records(self.curves.division, self.config)

    @property
    def limits(self) -> Limits:
        """What the configuration accepts from each adversary; the limits by default where it names none."""
        audit = _toml(self.config).get("audit")
        named = audit.get("limits") if isinstance(audit, dict) else None
        return read_limits(named if isinstance(named, dict) else {})


def read_run(folder: Path) -> Run:
    """Read the run in `folder`; only `results.json` must be there."""
    results = folder / "results.json"
    _check_unchanged(folder)
    rows = _parsed(results, tuple[Finding, ...])
    if rows is None and (folder / "config.toml").is_file():
        raise BadInput(
            f"{folder}: the run is not finished; repeat its command, which goes on where it stopped"
        )
    if rows is None:
        raise BadInput(f"{folder}: no results.json there; give a folder written by glasshouse audit or study")
    _check_rows(results, rows)
    curves, study, environment = (folder / f"{name}.json" for name in ("curves", "study", "environment"))
    run = Run(
        folder=folder,
        rows=rows,
        curves=_parsed(curves, Exhibits) or Exhibits(),
        study=_parsed(study, StudyPage),
        config=_text(folder / "config.toml"),
        environment=_parsed(environment, dict[str, str]),
    )
    for picture in run.curves.gallery:
        for path in filter(None, (picture.original, picture.result)):
            if not _lies_inside(folder, path):
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


def _check_unchanged(folder: Path) -> None:
    """Refuse files that are not those that the run wrote, where it left their checksums."""
    listed = folder / "checksums.json"
    for name, checksum in (_parsed(listed, dict[str, str]) or {}).items():
        if name == SCORES:  # no page is made of it, and whoever needs the room may delete it
            continue
        content = _content(folder / name) if name in CHECKED else None
        if content is None or hashed(content).hexdigest() != checksum:
            raise BadInput(
                f"{folder / name} is missing or not as the run wrote it (it does not fit {listed}); "
                "run the audit or study again"
            )


def _check_rows(path: Path, rows: tuple[Finding, ...]) -> None:
    if not rows:
        raise BadInput(f"{path}: no findings in it; run the audit or study again")
    if len(rows) > MOST_ROWS:
        raise BadInput(f"{path}: {len(rows):,} findings, over the limit of {MOST_ROWS:,}; split the run")
    for place, row in enumerate(rows):
        for key in ("value", "low", "high", "chance", "printed", "seconds", "n", "seed"):
            if abs(getattr(row, key) or 0) > LARGEST:
                raise BadInput(
                    f"{path}: at {place}.{key}: a number beyond {LARGEST:g}, which no page can show; "
                    "run the audit or study again"
                )


def _lies_inside(folder: Path, path: str) -> bool:
    try:
        (folder / path).is_file()
        return (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a name that is too long, a circle of links, a NUL
        return False


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


def _parsed(path: Path, kind: type[Parsed]) -> Parsed | None:
    """What a JSON file holds, checked; None where there is no file."""
    content = _content(path)
    if content is None:
        return None
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise BadInput(
                f"{path}: not readable as JSON ({first['ctx']['error']}); run the audit or study again"
            ) from error
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise BadInput(f"{path}: at {place}: {first['msg']}; run the audit or study again") from error


def _text(path: Path) -> str | None:
    content = _content(path)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not readable as text ({error}); run the audit or study again") from error


def _content(path: Path) -> bytes | None:
    try:
        return read_file(path, LONGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}); check the folder and its rights"
        ) from error


def _toml(text: str | None) -> dict[str, Any]:
    try:
        return parse_toml(text or "")
    except ValueError:
        return {}  # the page still shows the text as it is


def _values_of(key: str, tree: dict[str, Any]) -> Iterator[Any]:
    waiting = [tree]
    while waiting:
        table = waiting.pop()
        if key in table:
            yield table[key]
        waiting += [branch for branch in reversed(table.values()) if isinstance(branch, dict)]
