"""What a study would do: its cells, which of them the paper prints a number for, and how long they take."""

from collections.abc import Iterator
from pathlib import Path

from glasshouse.progress.time_left import duration
from glasshouse.store import kept
from glasshouse.studies.run import Plan, cell_file, chosen_cells, default_folder, read_plan, stages
from glasshouse.studies.study import Cell, CellResult
from glasshouse.studies.timings import usual_seconds

WHOLE = {"smoke": "under a minute in all", "laptop": "up to four hours in all on two cores"}
"""How long all cells of a scale take together, where some of them were never timed."""

UNTIMED = "how long it takes is unknown"

UNKNOWN = "unknown"


def overview(
    name: str,
    *,
    scale: str = "smoke",
    cells: str = "*",
    seeds: int | None = None,
    seed: int = 0,
    attack: str | None = None,
    out: Path | str | None = None,
) -> Iterator[str]:
    """A line for each cell that matches: whether a number is printed, and how long it takes.

    What ran is read from the run's folder; nothing is run and nothing is written.
    """
    plan = read_plan(name, scale=scale, cells=cells, seeds=seeds, seed=seed, attack=attack)
    folder = Path(out) if out is not None else default_folder(plan)
    listed = chosen_cells(plan)
    width = max(len(cell.name) for cell in listed)
    counts = sorted({len(plan.seeds_of(cell)) for cell in listed})
    grid, usual = len(plan.study.cells(scale)), usual_seconds(name, scale)
    timed = usual.keys() >= {cell.name for cell in listed}
    whole = _whole(plan, listed) if timed else WHOLE.get(scale, UNTIMED)
    shown = f"{grid} cells" if len(listed) == grid else f"{len(listed)} of {grid} cells"
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    each = f"{several} {'seed' if counts == [1] else 'seeds'} each"
    yield f"{name} at scale {scale}: {shown}, {each}; {whole}"
    yield f"{'cell':{width}}  {'printed':8}  seconds"
    for cell in listed:
        done = _done(folder, plan, cell)
        seconds = _seconds(done, len(plan.seeds_of(cell)), usual.get(cell.name))
        yield f"{cell.name:{width}}  {_printed(cell, done):8}  {seconds}"


def _whole(plan: Plan, listed: list[Cell]) -> str:
    """How long all seeds of these cells usually take together, on two cores."""
    every = [cell for cell in listed for _ in plan.seeds_of(cell)]
    return f"about {duration(sum(stage.total for stage in stages(plan, every, 2)))} in all on two cores"


def _done(folder: Path, plan: Plan, cell: Cell) -> list[CellResult]:
    """What the cell's finished seeds left."""
    files = (folder / "work" / f"{cell_file(cell, seed)}.json" for seed in plan.seeds_of(cell))
    found = (kept(file, CellResult) for file in files if file.exists())
    return [result for result in found if result is not None]


def _printed(cell: Cell, done: list[CellResult]) -> str:
    """Whether the paper prints a number for this cell."""
    found = any(finding.printed is not None for result in done for finding in result.findings)
    return "yes" if cell.printed or found else "no"


def _seconds(done: list[CellResult], count: int, usual: float | None) -> str:
    """How long the finished seeds took, and so about how long the others will; else what is usual."""
    took = [result.seconds for result in done if result.seconds is not None]
    if not took:
        expected = UNKNOWN if usual is None else f"about {usual * count:,.1f}, on two cores"
        return "done, time not recorded" if done else expected
    mean = sum(took) / len(took)
    if len(done) == count:
        return f"{sum(took):,.1f}, done"
    return f"about {mean * count:,.1f}, by {len(done)} of {count} seeds done"
