"""A run folder, read and checked: the rows, the curves and what else the page is built from."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from glasshouse.errors import BadInput
from glasshouse.findings import Finding
from glasshouse.store import read_text


class TrainingPoint(BaseModel):
    """Accuracy after one round; `acc_local` is the mean over the clients' own models."""

    model_config = ConfigDict(frozen=True)

    cell: str | None = None
    defence: str = "none"
    strategy: str = ""
    round: int
    acc_global: float | None
    acc_local: float | None = None


class Roc(BaseModel):
    """A membership attack's ROC curve, `fpr` ascending, both of the same length."""

    model_config = ConfigDict(frozen=True)

    cell: str | None = None
    attack: str
    defence: str = "none"
    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    members: int
    nonmembers: int


class Exhibit(BaseModel):
    """A private image beside what the adversary made of it, as paths inside the run folder."""

    model_config = ConfigDict(frozen=True)

    cell: str | None = None
    attack: str = ""
    defence: str = "none"
    caption: str = ""
    original: str
    result: str
    note: str = ""


class Curves(BaseModel):
    """What `curves.json` holds."""

    model_config = ConfigDict(frozen=True)

    training: tuple[TrainingPoint, ...] = ()
    roc: tuple[Roc, ...] = ()
    gallery: tuple[Exhibit, ...] = ()


class Claim(BaseModel):
    """One claim of a paper and what the study found."""

    model_config = ConfigDict(frozen=True)

    claim: str
    verdict: str
    reason: str = ""


class Study(BaseModel):
    """What `study.json` holds."""

    model_config = ConfigDict(frozen=True)

    title: str = ""
    summary: str = ""
    verdicts: tuple[Claim, ...] = ()


class Run(BaseModel):
    """Everything a page is built from."""

    model_config = ConfigDict(frozen=True)

    folder: Path
    rows: tuple[Finding, ...]
    curves: Curves = Curves()
    study: Study | None = None
    config: str | None = None
    environment: dict[str, Any] | None = None

    def setting(self, key: str) -> Any:
        """The first value called `key` anywhere in the configuration, or None."""
        return next(_values_of(key, _toml(self.config)), None)


def read_run(folder: Path) -> Run:
    """Read the run in `folder`; only `results.json` must be there."""
    results = folder / "results.json"
    if not results.is_file():
        raise BadInput(f"{folder}: no results.json there; give a folder written by glasshouse audit or study")
    config, study = folder / "config.toml", folder / "study.json"
    rows = _parsed(results, TypeAdapter(tuple[Finding, ...]))
    if not rows:
        raise BadInput(f"{results}: no findings in it; run the audit or study again")
    curves = folder / "curves.json"
    environment = folder / "environment.json"
    run = Run(
        folder=folder,
        rows=rows,
        curves=_parsed(curves, TypeAdapter(Curves)) if curves.is_file() else Curves(),
        study=_parsed(study, TypeAdapter(Study)) if study.is_file() else None,
        config=read_text(config),
        environment=(_parsed(environment, TypeAdapter(dict[str, Any])) if environment.is_file() else None),
    )
    for exhibit in run.curves.gallery:
        for path in (exhibit.original, exhibit.result):
            if not (folder / path).resolve().is_relative_to(folder.resolve()):
                raise BadInput(f"{curves}: image {path!r} lies outside the run folder; copy it inside")
    for roc in run.curves.roc:
        if len(roc.fpr) != len(roc.tpr):
            raise BadInput(
                f"{curves}: ROC of {roc.attack} has {len(roc.fpr)} fpr and {len(roc.tpr)} tpr values; "
                "give one tpr for each fpr"
            )
    return run


def _parsed(path: Path, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_python(json.loads(path.read_text(encoding="utf-8")))
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
