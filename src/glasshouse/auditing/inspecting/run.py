"""One recorded update, inspected: its case, the attacks on it, and what is left in the folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from glasshouse.access import UpdateAccess
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.gallery import save_pictures
from glasshouse.auditing.inspecting.case import Inspected, make_case
from glasshouse.auditing.inspecting.reading import CLOSE, Told
from glasshouse.auditing.inspecting.statement import findings, pairs, state
from glasshouse.auditing.inspecting.tries import best, closed_forms, searches
from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits, Statement
from glasshouse.learning.engine import Engine
from glasshouse.models.shapes import Shape
from glasshouse.progress import Progress
from glasshouse.provenance import Origin, own_code, versions
from glasshouse.results import Results, write_results
from glasshouse.runfolder import RunFolder, open_run
from glasshouse.store import checksum_of_file, slug

LABELS = "label-counts"
UNSCALED = "the learning rate is not known, without which the last layer says nothing of labels; give --lr"


@dataclass(frozen=True)
class Inspection(Results):
    """The findings about one update, their folder, and the statement of risk."""

    statement: Statement


def run_inspection(
    update: Path,
    before: Path,
    model: str | nn.Module,
    shape: Shape,
    classes: int,
    told: Told,
    *,
    parts: Mapping[str, Any],
    seconds: float = 30.0,
    seed: int = 0,
    out: Path | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Inspection:
    """Read the update, attack it, and write findings and exhibits."""
    if not 0 < seconds < float("inf"):
        raise BadInput(f"seconds = {seconds} is out of range; it must be above 0")
    inspected = make_case(update, before, model, shape, classes, told, parts=parts, seed=seed)
    given = {"update": update, "before": before} | {
        name: Path(source) for name, source in parts.items() if isinstance(source, str | Path)
    }
    named = inspected.case.subject.model or ""
    options = {**vars(told), "shape": "x".join(map(str, shape)), "classes": classes, "seconds": seconds}
    origin = Origin(
        code=versions() | own_code([named] if ":" in named else []),
        given={name: checksum_of_file(file) for name, file in given.items()},
    )
    config = _config(given, {"model": named, "seed": seed, **options})
    folder = open_run(out, f"inspect-{slug(update.stem)}", config, origin)
    with Progress(quiet=quiet) as progress, Engine(workers, engine, say=progress.say) as running:
        return _inspect(inspected, folder, seconds, running, progress)


def _inspect(
    inspected: Inspected, folder: RunFolder, seconds: float, engine: Engine, progress: Progress
) -> Inspection:
    """Labels first; a search only where no closed form explains the update."""
    case = inspected.case
    labels = _labels(inspected)
    tries = closed_forms(case, seconds, progress)
    if not any(one.complete for one in tries):
        fit = inspected.reading.fit
        readable = inspected.reading.scaled and fit is not None and fit.left < CLOSE
        tries += searches(case, "counts" if readable else "joint", seconds, engine, progress)
    kept = best(tries)
    statement = state(inspected, labels, tries, kept)
    exhibits = Exhibits(statements=(statement,))
    if kept is not None:
        shown = save_pictures(pairs(inspected, kept), folder.path, slug(kept.spec))
        exhibits += Exhibits(gallery=shown).about(**kept.examination.labels)
        exhibits += kept.examination.exhibits()
    results = write_results(folder.path, findings(inspected, labels, tries), exhibits)
    return Inspection(results.folder, results.findings, statement)


def _labels(inspected: Inspected) -> Examination:
    """The label counts, which need the scale of the gradient."""
    if not inspected.reading.scaled:
        return Examination(inspected.case, LABELS, UpdateAccess, "labels", reason=UNSCALED)
    return examine(inspected.case, LABELS, UpdateAccess)


def _config(given: Mapping[str, Path], options: Mapping[str, Any]) -> str:
    """What was asked, as TOML."""
    named = {name: str(path) for name, path in given.items()}
    known = {name: value for name, value in {**named, **options}.items() if value is not None}
    return "[inspect]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in known.items())
