"""Fill the page of a study, docs/studies/NAME.md, from the folder of its run.

    python docs/studies.py runs/study-mia-bad-laptop
    python docs/studies.py runs/rivals --part 'Table 3'

What stands between `<!-- measured: begin -->` and `<!-- measured: end -->` is written anew: the verdicts, the
study's own tables, and its figures and pictures, which are copied to docs/images/studies/. From the run of a
`--part` only the tables whose titles begin so are taken, and verdicts on claims that the page lacks.
"""

import argparse
import re
import shutil
import tomllib
from pathlib import Path

from glasshouse.exhibits import Chart, StudyTable
from glasshouse.report.run import Run, read_run
from glasshouse.spelling import slug

HERE = Path(__file__).parent
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def measured(folder: Path, name: str) -> str:
    """Everything that the run in `folder` found, as markdown."""
    run = read_run(folder)
    assert run.study is not None
    setup = tomllib.loads(run.config or "")
    seeds = sorted({row.seed for row in run.rows if row.seed is not None})
    versions = run.environment or {}
    parts = [
        f"Made by `glasshouse study {name} --scale {setup['scale']}` with seeds {_listed(seeds)}, Python "
        f"{versions.get('python')}, torch {versions.get('torch')}. {run.study.summary}",
        "### Verdicts",
        _table(
            ["claim", "verdict", "measured"],
            [[claim.claim, f"**{claim.verdict}**", claim.reason] for claim in run.study.verdicts],
        ),
    ]
    parts += _figures(run, name)
    parts += _pictures(run)
    parts += _tables(run)
    return "\n\n".join(parts)


def _figures(run: Run, name: str) -> list[str]:
    assert run.study is not None
    target = HERE / "images" / "studies"
    target.mkdir(parents=True, exist_ok=True)
    parts = ["### Figures"]
    for chart in run.study.charts:
        file = f"{slug('chart', chart.name)}.png"
        kept = f"{name}-{slug(chart.name)}.png"
        shutil.copyfile(run.folder / "figures" / file, target / kept)
        parts.append(f"![{chart.title}](../images/studies/{kept})")
        parts.append(_caption(chart))
    return parts


def _pictures(run: Run) -> list[str]:
    """Where the run's pictures are: they show images of the data sets, which are not ours to copy."""
    shown = len(run.curves.gallery)
    note = (
        f"The run's own page shows {shown} batches beside what was made of them; `glasshouse study` makes it."
    )
    return ["### Pictures", note] if shown else []


def _caption(chart: Chart) -> str:
    return f"*{chart.title}.* {chart.note}".strip()


def _tables(run: Run) -> list[str]:
    assert run.study is not None
    parts = ["### Tables"]
    for layout in run.study.tables:
        parts.append(f"**{layout.title}**")
        parts.append(_layout(layout))
        if layout.note:
            parts.append(layout.note)
    return parts


def _layout(layout: StudyTable) -> str:
    return _table(
        list(layout.columns), [["" if cell is None else str(cell) for cell in row] for row in layout.rows]
    )


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _listed(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds))


def renewed(text: str, run: Run, part: str) -> str:
    """The page `text` with the tables of `part`, and verdicts on claims that it lacks, from `run`."""
    assert run.study is not None
    for layout in run.study.tables:
        if layout.title.startswith(part):
            old = rf"\*\*{re.escape(layout.title)}\*\*\n\n(\|.*\n)+(\n[^*<\n].*\n)?"
            new = "\n\n".join([f"**{layout.title}**", _layout(layout), layout.note or ""]).strip()
            text, count = re.subn(old, lambda _, new=new: f"{new}\n", text)
            assert count == 1, f"{layout.title} stands on the page {count} times"
    for claim in run.study.verdicts:
        if f"| {claim.claim} |" not in text:
            row = f"| {claim.claim} | **{claim.verdict}** | {claim.reason} |\n"
            text = re.sub(r"### Verdicts\n\n(\|.*\n)+", lambda old, row=row: old[0] + row, text)
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--part", help="what the titles of the tables to renew begin with")
    options = parser.parse_args()
    study = tomllib.loads((options.run / "config.toml").read_text())["study"]
    page = HERE / "studies" / f"{study}.md"
    text = page.read_text()
    if options.part is None:
        filling = f"{BEGIN}\n\n{measured(options.run, study)}\n\n{END}"
        page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: filling, text, flags=re.DOTALL))
    else:
        page.write_text(renewed(text, read_run(options.run), options.part))
