"""One page that sets several runs side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glasshouse.errors import BadInput
from glasshouse.report.page import facts
from glasshouse.report.rendering import render
from glasshouse.report.run import Run, read_run
from glasshouse.report.tables import table
from glasshouse.report.tables.table import Cell, Table, columns, text_cell
from glasshouse.report.words.names import defence_words
from glasshouse.store import write_text
from glasshouse.verdicts.comparison import any_apart
from glasshouse.verdicts.measure import Measure, federated, headline, leaks, ordered_adversaries, undefended
from glasshouse.verdicts.metrics import CENTRAL, family_words, metric_words
from glasshouse.verdicts.pooling import pooled

Key = tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """One run of the comparison: its name on the page and its measures by key."""

    name: str
    run: Run
    measures: dict[Key, Measure]


@dataclass(frozen=True)
class Contest:
    """One attack in every run, undefended where that was measured."""

    question: str
    attack: str
    lines: tuple[tuple[str, Measure], ...]


@dataclass(frozen=True)
class ComparedRuns:
    """Everything the page shows."""

    title: str
    differing: list[str]
    settings: Table
    opponents: list[tuple[str, list[Contest]]]  # of each adversary
    findings: Table


def compare_reports(folders: list[Path], out: Path) -> Path:
    """Write a page that compares the runs in `folders`; returns its path.

    `out` is the page itself when it ends in .html, else a folder that receives `report.html`.
    """
    if len(folders) < 2:
        raise BadInput(f"{len(folders)} run folder to compare; give at least two")
    runs = [read_run(Path(folder)) for folder in folders]
    page = Path(out) if Path(out).suffix == ".html" else Path(out) / "report.html"
    if page.parent.resolve() in {run.folder.resolve() for run in runs} and page.name == "report.html":
        raise BadInput(f"{out}: holds a run's own report; name another folder or a file ending in .html")
    inside = _varying_inside(runs)
    sides = [
        Side(name, run, {_key(m, inside): m for m in pooled(run.rows)})
        for name, run in zip(distinct_names([run.folder for run in runs]), runs)
    ]
    compared = ComparedRuns(
        title=f"{len(sides)} runs side by side",
        differing=_differing(sides),
        settings=_settings_table(sides),
        opponents=_opponents(sides),
        findings=_findings_table(sides, inside),
    )
    write_text(page, render("compare.html", compared))
    return page


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    paths = [folder.resolve() for folder in folders]
    longest = max(len(path.parts) for path in paths)
    for length in range(1, longest):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({number})" for number, path in enumerate(paths, 1)]


def _varying_inside(runs: Sequence[Run]) -> list[str]:
    """The keys that tell findings of one run apart, beyond attack, defence and metric."""
    keys = ("source", "cell", "strategy", "data", "model")
    on_trial = [[row for row in run.rows if row.strategy != CENTRAL] for run in runs]
    repeated = [key for key in keys if any(len({getattr(row, key) for row in rows}) > 1 for rows in on_trial)]
    # A cell names data, model, strategy and defence at once: where these tell findings apart, it need not.
    without = [key for key in repeated if key != "cell"]
    measured = [pooled(run.rows) for run in runs]
    clash = any(len({_key(m, without) for m in measures}) < len(measures) for measures in measured)
    return repeated if clash else without


def _key(measure: Measure, inside: Iterable[str]) -> Key:
    row = measure.row
    baseline = CENTRAL if row.strategy == CENTRAL else ""
    fixed = (row.adversary or "", row.attack or "", row.defence or "none", row.metric, row.family, baseline)
    return (*fixed, *(str(getattr(row, key) or "") for key in inside))


def _differing(sides: Sequence[Side]) -> list[str]:
    """The facts in which the runs are not alike, results aside."""
    seen: dict[str, set[str]] = {}
    for side in sides:
        for name, value in facts(side.run, []):
            seen.setdefault(name, set()).add(value)
    return [name for name, values in seen.items() if len(values) > 1]


def _settings_table(sides: Sequence[Side]) -> Table:
    rows = [(side, dict(facts(side.run, list(side.measures.values())))) for side in sides]
    labels = list(dict.fromkeys(label for _, values in rows for label in values))
    heads = columns("run", *labels) + columns("seeds", "findings", numeric=True)
    body = tuple(
        (
            text_cell(side.name),
            *(text_cell(values.get(label)) for label in labels),
            text_cell(len({row.seed for row in side.run.rows})),
            text_cell(len(side.run.rows)),
        )
        for side, values in rows
    )
    return Table("runs", "The runs", tuple(heads), body)


def _opponents(sides: Sequence[Side]) -> list[tuple[str, list[Contest]]]:
    everything = federated([m for side in sides for m in side.measures.values()])
    opponents = []
    for name in ordered_adversaries(everything):
        leaking = [m for m in everything if m.row.adversary == name and leaks(m)]
        attacks = dict.fromkeys((m.row.family, m.row.attack) for m in leaking)
        contests = []
        for family, attack in attacks:
            tried = [m for m in leaking if (m.row.family, m.row.attack) == (family, attack)]
            metric, defence = headline(tried), undefended(tried)
            lines = [
                (side.name, m)
                for side in sides
                for m in federated(list(side.measures.values()))
                if (m.row.adversary, m.row.family, m.row.attack) == (name, family, attack)
                and (m.row.metric, m.row.defence or "none") == (metric, defence)
            ]
            question = family_words(family).question or family
            under = "" if defence == "none" else f", under {defence_words(defence)}"
            contests.append(Contest(question, f"{attack or family}{under}", tuple(lines)))
        opponents.append((name, contests))
    return opponents


def _findings_table(sides: Sequence[Side], inside: Sequence[str]) -> Table:
    heads = columns("adversary", "attack", "defence", *inside, "metric")
    heads += [*(table.ranged_column(side.name) for side in sides), *columns("intervals")]
    body = []
    for key in dict.fromkeys(key for side in sides for key in side.measures):
        adversary, attack, defence, metric, _, baseline, *rest = key
        measured = metric_words(metric).label + (", trained centrally" if baseline else "")
        measures = [side.measures.get(key) for side in sides]
        apart = {None: "", True: "apart", False: "overlap"}[any_apart([m for m in measures if m])]
        body.append(
            (
                text_cell(adversary),
                text_cell(attack),
                table.defence_cell(defence),
                *(text_cell(part) for part in rest),
                Cell(measured, measured, (measured if baseline else metric,)),
                *(table.measure_cell(m) for m in measures),
                text_cell(apart),
            )
        )
    caption = f"All {len(body)} findings side by side; coloured where the attack beats chance"
    return Table("findings", caption, tuple(heads), tuple(body), filterable=True)
