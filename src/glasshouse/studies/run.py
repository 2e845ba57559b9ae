"""Running a study: the cells that are missing, then the page."""

import dataclasses
import json
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean

from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits, StudyTable
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.progress.time_left import Stage, arrivals
from glasshouse.provenance import Origin, own_code, versions
from glasshouse.registry import unknown
from glasshouse.results import Results, write_results
from glasshouse.runfolder import RunFolder
from glasshouse.store import slug, write_json
from glasshouse.studies import STUDIES
from glasshouse.studies.own_attack import beside_others, check_attack
from glasshouse.studies.study import SCALES, Cell, CellResult, Study, Workplace
from glasshouse.studies.timings import usual_seconds


@dataclasses.dataclass(frozen=True)
class Plan:
    """A study as it was asked for: its scale, the pattern of its cells, the first seed, how many seeds were
    `wanted` of each cell, if any number, and an attack beside.
    """

    study: Study
    scale: str
    cells: str
    first: int
    wanted: int | None = None
    attack: str | None = None

    def seeds_of(self, cell: Cell) -> range:
        """The seeds of a cell: as many as were asked for, or its own number, or the study's."""
        count = self.wanted or cell.seeds or self.study.seeds(self.scale)
        return range(self.first, self.first + count)

    def seeds_of_all(self, cells: Sequence[Cell]) -> range:
        """The seeds that any of the cells has."""
        return range(self.first, max(self.seeds_of(cell).stop for cell in cells))


def run_study(
    name: str,
    *,
    scale: str = "smoke",
    cells: str = "*",
    seeds: int | None = None,
    seed: int = 0,
    attack: str | None = None,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Results:
    """Run the cells of a study that match the pattern `cells`, and report on all that are done.

    An `attack` of the user's own, or another one of Glasshouse, runs beside the study's where it fits.
    """
    plan = read_plan(name, scale=scale, cells=cells, seeds=seeds, seed=seed, attack=attack)
    study, grid, chosen = plan.study, plan.study.cells(scale), chosen_cells(plan)
    config = f'study = "{name}"\nscale = "{scale}"\nseed = {seed}\n'
    if attack is not None:
        config += f"attack = {json.dumps(attack)}\n"
    origin = Origin(code=versions() | own_code([name, *([attack] if attack else [])]))
    folder = RunFolder(Path(out or default_folder(plan)), config, origin)
    missing = [
        (cell, number)
        for number in plan.seeds_of_all(chosen)
        for cell in chosen
        if number in plan.seeds_of(cell) and folder.kept(cell_file(cell, number), CellResult) is None
    ]
    with Progress(quiet=quiet) as progress, Engine(workers, engine, say=progress.say) as running:
        if folder.news:
            progress.say(folder.news)
        jobs = [Job(name, cell, number, folder, attack or "") for cell, number in missing if cell.single]
        progress.expect(stages(plan, [cell for cell, _ in missing], running.workers), known=False)
        for _ in progress.track(running.map(_run_single, jobs), f"study {name}", len(jobs)):
            pass
        others = [(cell, number) for cell, number in missing if not cell.single]
        for cell, number in progress.track(others, f"study {name}", len(others)):
            _run_cell(Job(name, cell, number, folder, attack or ""), running, progress)
    measured = _collect(folder, grid)
    findings, shown = measured.findings, study.present(measured.findings, measured.exhibits)
    done = len({finding.cell for finding in findings})
    most = len({finding.seed for finding in findings})
    seeds_each = "one seed each" if most == 1 else f"up to {most} seeds each"
    page = {
        "title": study.title,
        "summary": f"{done} of {len(grid)} cells at scale {scale}, with {seeds_each}.",
        "verdicts": [dataclasses.asdict(verdict) for verdict in study.conclude(findings)],
        "tables": [table.model_dump() for table in (*_beside(plan, measured), *shown.tables)],
        "charts": [chart.model_dump() for chart in shown.charts],
    }
    write_json(folder.path / "study.json", page)
    return write_results(folder.path, findings, measured.exhibits + Exhibits(gallery=shown.gallery))


def stages(plan: Plan, cells: Sequence[Cell], workers: int) -> list[Stage]:
    """The cells to come, of single ones as many at once as there are workers, by how long each usually takes.

    A cell that nobody has timed counts like the mean of the others.
    """
    usual = usual_seconds(plan.study.name, plan.scale)
    mean = fmean(usual.values()) if usual else 1.0
    single, others = (
        [usual.get(cell.name, mean) for cell in cells if cell.single == alone] for alone in (True, False)
    )
    label = f"study {plan.study.name}"
    return [
        Stage(label, tuple(arrivals(single, workers)), "single cells"),
        Stage(label, tuple(others), "cells"),
    ]


def read_plan(name: str, *, scale: str, cells: str, seeds: int | None, seed: int, attack: str | None) -> Plan:
    """Check what was asked for, before any work is done."""
    if scale not in SCALES:
        raise BadInput(unknown("scale", scale, SCALES))
    study: Study = STUDIES.make(name)
    if attack is not None:
        check_attack(study, attack)
    return Plan(study, scale, cells, seed, seeds, attack)


def chosen_cells(plan: Plan) -> list[Cell]:
    """The cells that match; refuses a pattern that none does."""
    grid = plan.study.cells(plan.scale)
    chosen = [cell for cell in grid if fnmatchcase(cell.name, plan.cells)]
    if not chosen:
        raise BadInput(
            f"no cell of {plan.study.name} matches {plan.cells!r}; "
            f"there are {', '.join(cell.name for cell in grid)}"
        )
    return chosen


def default_folder(plan: Plan) -> Path:
    """Where a study goes unless the user says otherwise."""
    beside = f"-{slug(plan.attack)}" if plan.attack else ""
    return Path("runs") / f"study-{slug(plan.study.name)}-{plan.scale}{beside}"


def _beside(plan: Plan, measured: CellResult) -> list[StudyTable]:
    """The user's attack beside the study's own."""
    if plan.attack is None:
        return []
    return beside_others(plan.attack, measured.findings, measured.exhibits.records)


@dataclasses.dataclass(frozen=True)
class Job:
    """A cell to run with one seed."""

    study: str
    cell: Cell
    seed: int
    folder: RunFolder
    attack: str = ""


def _run_single(job: Job) -> None:
    """Run a cell that needs one core; where several do, each is in a process of its own."""
    with Progress(quiet=True) as progress, Engine(1) as engine:
        _run_cell(job, engine, progress)


def _run_cell(job: Job, engine: Engine, progress: Progress) -> None:
    """Run a cell and keep what it measured, stamped with its place in the study."""
    name = cell_file(job.cell, job.seed)
    work = job.folder.work
    place = Workplace(engine, job.seed, work / name, work / "shared", progress, job.attack)
    began = time.perf_counter()
    result = job.cell.run(place)
    seconds = round(time.perf_counter() - began, 3)
    if not isinstance(result, CellResult):
        result = CellResult(result)
    findings = [
        dataclasses.replace(finding, source=job.study, cell=job.cell.name, seed=job.seed)
        for finding in result.findings
    ]
    exhibits = result.exhibits.about(cell=job.cell.name, seed=job.seed)
    job.folder.keep(name, CellResult(findings, exhibits, seconds))


def _collect(folder: RunFolder, grid: list[Cell]) -> CellResult:
    """What every finished cell measured, in the order of the grid, then of the seeds."""
    files = [file for cell in grid for file in sorted((folder.work / cell.name).glob("seed-*.json"))]
    names = (str(file.relative_to(folder.work).with_suffix("")) for file in files)
    kept = [result for name in names if (result := folder.kept(name, CellResult)) is not None]
    return CellResult(
        [finding for result in kept for finding in result.findings],
        sum((result.exhibits for result in kept), Exhibits()),
    )


def cell_file(cell: Cell, seed: int) -> str:
    """Under which name a cell's findings with a seed are kept."""
    return f"{cell.name}/seed-{seed:04d}"
