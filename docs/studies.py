"""Fill the page of a study, docs/studies/NAME.md, from the folder of its run.

    python docs/studies.py runs/study-mia-bad-laptop    # the whole page, and what was measured as a CSV
    python docs/studies.py                              # the claims of every page, judged anew from its CSV

Between `<!-- claims: begin -->` and `<!-- claims: end -->` stands a verdict on each claim; between
`<!-- measured: begin -->` and `<!-- measured: end -->` what the verdicts rest on, the study's own tables, and
its figures, which are copied to docs/images/studies/. All findings go to docs/studies/results/NAME.csv: cells
that it has and the run has not are kept, so that a run may be made in parts.
"""

import argparse
import csv
import dataclasses
import re
import shutil
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from glasshouse.exhibits import Chart, StudyTable
from glasshouse.findings import Finding
from glasshouse.report.run import Run, read_run
from glasshouse.spelling import DASH, slug
from glasshouse.store import kept
from glasshouse.studies import STUDIES
from glasshouse.studies.study import Cell, CellResult
from glasshouse.studies.timings import write_usual_seconds
from glasshouse.verdicts.claims import Verdict, correction

HERE = Path(__file__).parent
RESULTS = HERE / "studies" / "results"
FIELDS = [field.name for field in dataclasses.fields(Finding) if field.name not in ("source", "assumes")]
WHOLE = ("n", "seed")
NUMBERS = ("value", "low", "high", "chance", "printed", "seconds")


def write_findings(name: str, findings: Sequence[Finding]) -> list[Finding]:
    """Put the findings of a run into the study's CSV, in place of those of the same cells and seeds."""
    fresh = {(finding.cell, finding.seed) for finding in findings}
    older = [one for one in read_findings(name) if (one.cell, one.seed) not in fresh]
    rows = [*older, *findings]
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        filled = [field for field in FIELDS if any(getattr(row, field) is not None for row in rows)]
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(filled)
        writer.writerows([_spelled(getattr(row, field)) for field in filled] for row in rows)
    return read_findings(name)


def read_findings(name: str) -> list[Finding]:
    """What the study's CSV holds; nothing where it has none yet."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Finding(source=name, **_parsed(row)) for row in csv.DictReader(file)]


def _spelled(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _parsed(row: dict[str, str]) -> dict[str, Any]:
    kinds = dict.fromkeys(WHOLE, int) | dict.fromkeys(NUMBERS, float)
    needed = {"value": None}
    return needed | {key: kinds.get(key, str)(text) for key, text in row.items() if text}


def claims(verdicts: Sequence[Verdict]) -> str:
    """The paper's claims, each with its verdict; then, folded, the study's own questions."""
    claimed, asked = ([verdict for verdict in verdicts if verdict.own == own] for own in (False, True))
    parts = []
    if claimed:
        heads = ["claim", "in the paper", "printed", "measured", "verdict", "why they differ"]
        rows = [[v.claim, v.section, v.printed, v.reason, f"**{v.verdict}**", v.why] for v in claimed]
        parts += [table(heads, rows), correction(verdicts)]
    if asked:
        rows = [[v.claim, v.reason, f"**{v.verdict}**"] for v in asked]
        parts.append(
            folded("What the study asks beyond it", table(["question", "measured", "verdict"], rows))
        )
    return "\n\n".join(parts)


def measured(run: Run, name: str, findings: Sequence[Finding], verdicts: Sequence[Verdict]) -> str:
    """What was measured, as markdown: figures in sight, tables to open."""
    assert run.study is not None
    setup = tomllib.loads(run.config or "")
    seeds = ", ".join(map(str, sorted({one.seed for one in findings if one.seed is not None})))
    versions = run.environment or {}
    cells = len({one.cell for one in findings})
    rests = [
        [
            v.claim.partition(".")[0],
            said.what,
            said.where,
            said.measured,
            said.verdict,
            "<br>".join(said.cells),
        ]
        for v in verdicts
        for said in v.parts
    ]
    heads = ["claim", "measured is", "where", "measured", "verdict", "cells"]
    parts = [
        f"Made by `glasshouse study {name} --scale {setup['scale']}` with seeds {seeds}, Python "
        f"{versions.get('python')}, torch {versions.get('torch')}: {cells} cells with {len(findings):,} "
        f"[findings](results/{name}.csv).",
        folded(f"What the verdicts rest on, all {len(rests)} parts", table(heads, rests)),
        *_figures(run.study.charts, run.folder, name),
    ]
    shown = len(run.curves.gallery)
    if shown:  # the images are those of data sets, which are not ours to copy
        parts.append(f"The page of the run itself shows {shown} batches and what was made of them.")
    presented = STUDIES.make(name).present(findings, run.curves)
    return "\n\n".join([*parts, *map(_layout, presented.tables)])


def _figures(charts: Iterable[Chart], folder: Path, name: str) -> Iterable[str]:
    target = HERE / "images" / "studies"
    target.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        kept = f"{name}-{slug(chart.name)}.png"
        shutil.copyfile(folder / "figures" / f"{slug('chart', chart.name)}.png", target / kept)
        yield f"![{chart.title}](../images/studies/{kept})"
        yield f"*{chart.title}.* {chart.note}".strip()


def _layout(layout: StudyTable) -> str:
    rows = [["" if cell is None else str(cell) for cell in row] for row in layout.rows]
    note = f"\n\n{layout.note}" if layout.note else ""
    return folded(layout.title, table(list(layout.columns), rows) + note)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in markdown."""
    lines = [header, ["---"] * len(header), *([cell or DASH for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def folded(summary: str, text: str) -> str:
    """A text that opens on a click."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def put(page: Path, mark: str, text: str) -> None:
    """Write `text` between the marks of a page."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before = page.read_text()
    assert begin in before, f"{page.name} lacks {begin}"
    filling = f"{begin}\n\n{text}\n\n{end}"
    page.write_text(re.sub(f"{begin}.*?{end}", lambda _: filling, before, flags=re.DOTALL))


def from_run(folder: Path) -> None:
    """Fill the whole page of the study whose run this is."""
    setup = tomllib.loads((folder / "config.toml").read_text())
    name = setup["study"]
    run, page = read_run(folder), HERE / "studies" / f"{name}.md"
    write_usual_seconds(name, setup["scale"], seconds(folder, STUDIES.make(name).cells(setup["scale"])))
    findings = write_findings(name, run.rows)
    verdicts = STUDIES.make(name).conclude(findings)
    put(page, "claims", claims(verdicts))
    put(page, "measured", measured(run, name, findings, verdicts))


def seconds(folder: Path, cells: Iterable[Cell]) -> dict[str, float]:
    """What a seed of each cell took, of the cells that the run has."""
    spent: dict[str, float] = {}
    for cell in cells:
        files = (folder / "work" / cell.name).glob("seed-*.json")
        took = [result.seconds for file in files if (result := kept(file, CellResult)) and result.seconds]
        if took:
            spent[cell.name] = sum(took) / len(took)
    return spent


def judge_again() -> None:
    """Write the claims of every page that has a CSV, as the findings are judged now."""
    for file in sorted(RESULTS.glob("*.csv")):
        verdicts = STUDIES.make(file.stem).conclude(read_findings(file.stem))
        put(HERE / "studies" / f"{file.stem}.md", "claims", claims(verdicts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    for run in (given := parser.parse_args().runs):
        from_run(run)
    if not given:
        judge_again()
