"""Running a study: the cells that are missing, then the page."""

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path

from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.provenance import Origin, own_code, versions
from glasshouse.registry import unknown
from glasshouse.results import Results, write_results
from glasshouse.runfolder import RunFolder
from glasshouse.store import write_json
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
    config = f'study = "{name}"\nscale = "{scale}"\nseed = {seed}\n'
    origin = Origin(code=versions() | own_code([name]))
    folder = RunFolder(Path(out or Path("runs") / f"study-{name}-{scale}"), config, origin)
    missing = [
        (cell, number)
        for number in range(seed, seed + count)
        for cell in chosen
        if folder.kept(_name(cell, number), CellResult) is None
    ]
    with Progress(quiet=quiet) as progress, Engine(workers, engine, say=progress.say) as running:
        if folder.news:
            progress.say(folder.news)
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
    name = _name(job.cell, job.seed)
    place = Workplace(engine, job.seed, job.folder.work / name, job.folder.work / "shared", progress)
    result = job.cell.run(place)
    if not isinstance(result, CellResult):
        result = CellResult(result)
    findings = [
        dataclasses.replace(finding, source=job.study, cell=job.cell.name, seed=job.seed)
        for finding in result.findings
    ]
    job.folder.keep(name, CellResult(findings, result.exhibits.about(cell=job.cell.name, seed=job.seed)))


def _collect(folder: RunFolder, grid: list[Cell]) -> CellResult:
    """What every finished cell measured, in the order of the grid, then of the seeds."""
    files = [file for cell in grid for file in sorted((folder.work / cell.name).glob("seed-*.json"))]
    names = (str(file.relative_to(folder.work).with_suffix("")) for file in files)
    kept = [result for name in names if (result := folder.kept(name, CellResult)) is not None]
    return CellResult(
        [finding for result in kept for finding in result.findings],
        sum((result.exhibits for result in kept), Exhibits()),
    )


def _name(cell: Cell, seed: int) -> str:
    return f"{cell.name}/seed-{seed:04d}"
