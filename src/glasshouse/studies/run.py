"""Running a study: the cells that are missing, then the page."""

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path

from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits
from glasshouse.findings import from_row, rows
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.registry import unknown
from glasshouse.results import Results, versions, write_results
from glasshouse.store import RunFolder, read_json, write_json
from glasshouse.studies import STUDIES
from glasshouse.studies.study import SCALES, Cell, CellResult, Study, Workplace


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
    measured = _collect(folder, grid)
    findings, shown = measured.findings, study.present(measured.findings, measured.exhibits)
    done = len({finding.cell for finding in findings})
    most = len({finding.seed for finding in findings})
    seeds_each = "one seed each" if most == 1 else f"up to {most} seeds each"
    page = {
        "title": study.title,
        "summary": f"{done} of {len(grid)} cells at scale {scale}, with {seeds_each}.",
        "verdicts": [dataclasses.asdict(verdict) for verdict in study.conclude(findings)],
        "tables": [table.model_dump() for table in shown.tables],
        "charts": [chart.model_dump() for chart in shown.charts],
    }
    write_json(folder.path / "study.json", page)
    return write_results(folder.path, findings, measured.exhibits + Exhibits(gallery=shown.gallery))


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
    """Run a cell and keep what it measured, stamped with its place in the study."""
    file = _file(job.folder, job.cell, job.seed)
    place = Workplace(engine, job.seed, file.with_suffix(""), job.folder.work / "shared", progress)
    result = job.cell.run(place)
    if not isinstance(result, CellResult):
        result = CellResult(result)
    findings = [
        dataclasses.replace(finding, source=job.study, cell=job.cell.name, seed=job.seed)
        for finding in result.findings
    ]
    exhibits = result.exhibits.about(cell=job.cell.name, seed=job.seed)
    write_json(file, {"findings": rows(findings), "exhibits": exhibits.model_dump(mode="json")})


def _collect(folder: RunFolder, grid: list[Cell]) -> CellResult:
    """What every finished cell measured, in the order of the grid, then of the seeds."""
    kept = [
        read_json(file) for cell in grid for file in sorted((folder.work / cell.name).glob("seed-*.json"))
    ]
    return CellResult(
        [from_row(row) for cell in kept for row in cell["findings"]],
        sum((Exhibits.model_validate(cell["exhibits"]) for cell in kept), Exhibits()),
    )


def _file(folder: RunFolder, cell: Cell, seed: int) -> Path:
    return folder.work / cell.name / f"seed-{seed:04d}.json"
