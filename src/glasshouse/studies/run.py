"""Running a study: the cells that are missing, then the page."""

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from glasshouse.errors import BadInput
from glasshouse.findings import Finding, from_row
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.registry import unknown
from glasshouse.results import Results, versions, write_results
from glasshouse.store import RunFolder, read_json, write_json
from glasshouse.studies import STUDIES
from glasshouse.studies.study import SCALES, Cell, Study, Workplace


def run_study(
    name: str,
    *,
    scale: str = "smoke",
    cells: str = "*",
    seeds: int | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Results:
    """Run the cells of a study that match the pattern `cells`, and report on all that are done."""
    if scale not in SCALES:
        raise BadInput(unknown("scale", scale, SCALES))
    study: Study = STUDIES.make(name)
    grid = study.cells(scale)
    chosen = [cell for cell in grid if fnmatchcase(cell.name, cells)]
    if not chosen:
        raise BadInput(
            f"no cell of {name} matches {cells!r}; there are {', '.join(cell.name for cell in grid)}"
        )
    count = seeds or study.seeds(scale)
    config = (
        f'study = "{name}"\nscale = "{scale}"\nseed = {seed}\nglasshouse = "{versions()["glasshouse"]}"\n'
    )
    folder = RunFolder(Path(out or Path("runs") / f"study-{name}-{scale}"), config)
    missing = [
        (cell, number)
        for number in range(seed, seed + count)
        for cell in chosen
        if not _file(folder, cell, number).exists()
    ]
    with Progress(quiet=quiet) as progress, Engine(workers, engine) as running:
        jobs = [Job(name, cell, number, folder) for cell, number in missing if cell.single]
        for _ in progress.track(running.map(_run_single, jobs), f"study {name}", len(jobs)):
            pass
        others = [(cell, number) for cell, number in missing if not cell.single]
        for cell, number in progress.track(others, f"study {name}", len(others)):
            _run_cell(Job(name, cell, number, folder), running, progress)
    findings = _collect(folder, grid)
    verdicts = [dataclasses.asdict(verdict) for verdict in study.conclude(findings)]
    done = len({finding.cell for finding in findings})
    most = len({finding.seed for finding in findings})
    seeds_each = "one seed each" if most == 1 else f"up to {most} seeds each"
    summary = f"{done} of {len(grid)} cells at scale {scale}, with {seeds_each}."
    shown = study.present(findings)
    page = {
        "title": study.title,
        "summary": summary,
        "verdicts": verdicts,
        "tables": [table.model_dump() for table in shown.tables],
        "charts": [chart.model_dump() for chart in shown.charts],
    }
    write_json(folder.path / "study.json", page)
    gallery = {"gallery": [exhibit.model_dump() for exhibit in shown.gallery]} if shown.gallery else {}
    return write_results(folder.path, findings, gallery)


@dataclasses.dataclass(frozen=True)
class Job:
    """A cell to run with one seed."""

    study: str
    cell: Cell
    seed: int
    folder: RunFolder


def _run_single(job: Job) -> None:
    """Run a cell that needs one core; where several do, each is in a process of its own."""
    with Progress(quiet=True) as progress, Engine(1) as engine:
        _run_cell(job, engine, progress)


def _run_cell(job: Job, engine: Engine, progress: Progress) -> None:
    file = _file(job.folder, job.cell, job.seed)
    place = Workplace(engine, job.seed, file.with_suffix(""), job.folder.work / "shared", progress)
    found = [
        dataclasses.replace(finding, source=job.study, cell=job.cell.name, seed=job.seed)
        for finding in job.cell.run(place)
    ]
    write_json(file, [finding.row() for finding in found])


def _collect(folder: RunFolder, grid: list[Cell]) -> list[Finding]:
    """The findings of every finished cell, in the order of the grid, then of the seeds."""
    rows: list[dict[str, Any]] = []
    for cell in grid:
        for file in sorted((folder.work / cell.name).glob("seed-*.json")):
            rows += read_json(file)
    return [from_row(row) for row in rows]


def _file(folder: RunFolder, cell: Cell, seed: int) -> Path:
    return folder.work / cell.name / f"seed-{seed:04d}.json"
