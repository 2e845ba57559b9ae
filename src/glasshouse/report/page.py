"""The page of one run, built from its folder alone."""

import base64
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glasshouse.exhibits import Exhibits, Picture, Statement
from glasshouse.reading import read_file
from glasshouse.report.figures import panels
from glasshouse.report.figures.defences import tradeoff_panels
from glasshouse.report.figures.drawing import defence_colours
from glasshouse.report.figures.panel import Panel
from glasshouse.report.opening import Opening, opening
from glasshouse.report.rendering import render
from glasshouse.report.run import Run, read_run
from glasshouse.report.tables.division import DivisionSection, division_section
from glasshouse.report.tables.findings import assumptions_table, findings_table, remains_table
from glasshouse.report.tables.ladder import ladder_table
from glasshouse.report.tables.robustness import comparison_table, defences_table
from glasshouse.report.tables.study import study_sentence, study_tables
from glasshouse.report.tables.table import Table
from glasshouse.report.words.caveats import caveats
from glasshouse.report.words.matrix import card_line
from glasshouse.report.words.measures import overall
from glasshouse.report.words.names import adversary_words, defence_words, short_names
from glasshouse.spelling import DASH
from glasshouse.store import write_text
from glasshouse.verdicts.answers import AdversaryAnswers, Answer, Line, answers_by_adversary
from glasshouse.verdicts.comparison import Comparison, comparison
from glasshouse.verdicts.division import division_facts
from glasshouse.verdicts.ladder import Ladder, ladder
from glasshouse.verdicts.matrix import echoed
from glasshouse.verdicts.measure import BY_ACCESS, Measure, federated
from glasshouse.verdicts.metrics import CENTRAL
from glasshouse.verdicts.pooling import pooled, pooled_points
from glasshouse.verdicts.tradeoff import tradeoffs

PICTURE = 10_000_000
"""Bytes of a picture that goes into the page."""

Shown = tuple[Picture, str | None, str | None]
"""A picture with its two images as data, null where the file is missing."""


@dataclass(frozen=True)
class RobustnessSection:
    """The federated model beside the central one."""

    comparison: Comparison
    compared: Table
    defended: Table | None
    panels: list[Panel]


@dataclass(frozen=True)
class LadderSection:
    """How far up the ladder of realism training images are rebuilt."""

    ladder: Ladder
    table: Table
    panels: list[Panel]


@dataclass(frozen=True)
class Page:
    """Everything the page shows, section by section; an empty section is left out."""

    run: Run
    title: str
    facts: list[tuple[str, str]]
    overall: str
    statements: list[Statement]
    study_tables: list[Table]
    charts: list[Panel]
    answers: list[AdversaryAnswers]
    untried: list[str]
    risks: list[Panel]
    robustness: RobustnessSection | None
    tradeoffs: list[Panel]
    remains: Table
    rocs: list[Panel]
    trainings: list[Panel]
    division: DivisionSection | None
    ladder: LadderSection | None
    courses: list[Panel]
    gallery: list[tuple[str, list[Shown]]]
    findings: Table
    caveats: list[str]
    assumptions: Table | None
    opening: Opening | None

    @property
    def sections(self) -> list[tuple[str, str]]:
        """The anchor and label of each section that is there."""
        present = (
            (self.opening, "matrix", "Matrix"),
            (self.opening and self.opening.frontier, "frontier", "Frontier"),
            (self.statements, "statement", "Statement of risk"),
            (self.statements and self.gallery, "gallery", "Gallery"),
            (self.study_tables, "study", "Printed and measured"),
            (self.charts, "charts", "Figures"),
            (self.answers, "answers", "Adversaries" if self.opening else "Answers"),
            (self.risks, "risk", "Risk"),
            (self.robustness, "robustness", "Robustness"),
            (self.tradeoffs, "defences", "Defences"),
            (self.rocs, "roc", "ROC"),
            (self.trainings, "training", "Training"),
            (self.ladder, "ladder", "Ladder"),
            (not self.statements and (self.courses or self.gallery), "gallery", "Gallery"),
            (self.division, "data", "Data"),
            (True, "all", "Findings"),
            (True, "setup", "Setup"),
            (True, "caveats", "Caveats"),
        )
        return [(anchor, label) for content, anchor, label in present if content]

    def echo(self, card: AdversaryAnswers, answer: Answer) -> Measure | None:
        """What a weaker adversary gets, where that is as much as this answer."""
        return echoed(card.adversary, answer, self.answers) if self.opening else None

    def teaser(self, card: AdversaryAnswers) -> str:
        """What one adversary learns, in a line."""
        return card_line(card, self.opening.matrix) if self.opening else ""

    def attack_name(self, answer: Answer, line: Line) -> str:
        """The attack's name, without its options where that tells it from the others of an answer."""
        return short_names([one.name for one in answer.lines])[line.name]


def write_report(folder: Path) -> Path:
    """Write `report.html` and `figures/` into the run folder; returns the page's path."""
    run = read_run(Path(folder))
    if all(row.source == "audit" for row in run.rows):
        run = run.model_copy(update={"curves": _of_one_seed(run)})
    page = render("page.html", _page(run))
    write_text(run.folder / "report.html", page)
    return run.folder / "report.html"


def facts(run: Run, measures: Sequence[Measure]) -> list[tuple[str, str]]:
    """What was audited: data, model, strategy, clients and accuracy, as far as the folder says."""
    known = []
    for key in ("data", "model", "strategy"):
        seen = dict.fromkeys(str(getattr(row, key)) for row in run.rows if getattr(row, key))
        if len(seen) > 1:
            seen.pop(CENTRAL, None)
        if seen:
            known.append((key, ", ".join(seen)))
    if run.curves.division:
        known += division_facts(run.curves.division[0])
    elif run.clients is not None and any(row.strategy for row in run.rows):
        known.append(("clients", str(run.clients)))
    for where, central in (("test accuracy", False), ("trained centrally", True)):
        known += [
            (where, DASH if m.value is None else f"{m.value * 100:.1f}%")
            for m in measures
            if m.row.source == "audit"
            and m.row.metric == "test-accuracy"
            and (m.row.defence or "none") == "none"
            and (m.row.strategy == CENTRAL) == central
        ]
    return known + _sent(run)


def _page(run: Run) -> Page:
    measures = pooled(run.rows, same_records=run.same_records)
    audited = [m for m in measures if m.row.source == "audit"]
    studied = [m for m in measures if m.row.source != "audit"]
    colours = defence_colours([row.defence or "none" for row in run.rows])
    on_trial = federated(audited)
    answers, trades = answers_by_adversary(on_trial), tradeoffs(on_trial)
    tried = {one.adversary for one in answers}
    if run.curves.statements:  # one update, of which nobody may know the truth, under no defence
        trades, answers = [], [one for one in answers if _judged(one)]
    decides = bool(audited) and not studied and not run.curves.statements
    by_seed = [m for row in run.rows if row.source != "audit" for m in pooled([row])]
    return Page(
        run=run,
        title=_title(run, bool(studied)),
        facts=facts(run, measures),
        overall=_overall(run, answers) if audited else study_sentence(run.study, studied),
        statements=list(run.curves.statements),
        study_tables=study_tables(run.study, studied),
        charts=panels.chart_panels(run),
        answers=answers,
        untried=[]
        if run.curves.statements
        else [adversary_words(name).label.lower() for name in BY_ACCESS if name not in tried],
        risks=panels.risk_panels(run),
        robustness=_robustness(run, audited, colours),
        tradeoffs=tradeoff_panels(run, trades, colours),
        remains=remains_table(trades),
        rocs=panels.roc_section(run, colours),
        trainings=panels.training_panels(run, colours),
        division=division_section(run.curves.division[0]) if run.curves.division else None,
        ladder=_ladder(run, on_trial),
        courses=panels.course_panels(run, colours),
        gallery=_gallery(run),
        findings=findings_table([*audited, *by_seed]),
        caveats=caveats(run.rows, measures, run.curves.division),
        assumptions=assumptions_table(measures),
        opening=opening(run, audited, colours) if decides else None,
    )


def _of_one_seed(run: Run) -> Exhibits:
    """What can be drawn once: curves, pictures and risks of the first seed, as others have other clients.

    Accuracy against eps is averaged over the seeds; so is training, where it is drawn.
    """
    curves, kinds = run.curves, ("roc", "gallery", "risk", "course")
    seeds = {one.seed for kind in kinds for one in getattr(curves, kind)}
    drawn = (None, min((seed for seed in seeds if seed is not None), default=None))
    kept: dict[str, object] = {
        kind: tuple(one for one in getattr(curves, kind) if one.seed in drawn) for kind in kinds
    }
    points = pooled_points(curves.robustness, same_records=run.same_records)
    return curves.model_copy(update=kept | {"robustness": tuple(points)})


def _robustness(run: Run, measures: Sequence[Measure], colours: dict[str, str]) -> RobustnessSection | None:
    drawn = panels.robustness_panels(run, colours)
    compared = comparison(measures, run.curves.robustness)
    if compared is None:
        return None
    return RobustnessSection(compared, comparison_table(compared), defences_table(compared), drawn)


def _ladder(run: Run, measures: Sequence[Measure]) -> LadderSection | None:
    climbed = ladder(measures)
    if climbed is None:
        return None
    return LadderSection(climbed, ladder_table(climbed), panels.ladder_panels(run, climbed))


def _sent(run: Run) -> list[tuple[str, str]]:
    """What travels in the last round of an audit without defences: a strategy then sends all it ever does."""
    bare = [p for p in run.curves.training if p.defence == "none" and p.strategy != CENTRAL and p.down]
    if not bare or run.study is not None:
        return []
    down, up = bare[-1].down / 1e3, bare[-1].up / 1e3
    return [("sent a round", f"{down:,.1f} kB to each client, {up:,.1f} kB back")]


def _title(run: Run, studied: bool) -> str:
    if run.study and run.study.title:
        return run.study.title
    if studied:
        return "Printed and measured"
    trained = any(row.strategy for row in run.rows)
    if run.curves.statements and not trained:
        return "What this update gives away"
    return f"What this {'federation' if trained else 'model'} gives away"


def _judged(answers: AdversaryAnswers) -> bool:
    return any(answer.lead.value is not None for answer in answers.answers)


def _overall(run: Run, answers: Sequence[AdversaryAnswers]) -> str:
    """The whole answer in a sentence; about one update its statement has it."""
    return " ".join(statement.answer for statement in run.curves.statements) or overall(answers)


def _gallery(run: Run) -> list[tuple[str, list[Shown]]]:
    """The pictures of each attack, under its name, its adversary's and its defence's."""
    groups: dict[str, list[Shown]] = {}
    for picture in run.curves.gallery:
        who = adversary_words(picture.adversary).label if picture.adversary else ""
        under = "" if picture.defence == "none" else defence_words(picture.defence)
        title = ", ".join(filter(None, (picture.attack, who.lower(), under)))
        original, result = (
            None if path is None else _data_uri(run.folder / path)
            for path in (picture.original, picture.result)
        )
        groups.setdefault(title, []).append((picture, original, result))
    return list(groups.items())


def _data_uri(path: Path) -> str | None:
    if not path.is_file():
        return None
    kind = mimetypes.guess_type(path.name)[0] or ""
    picture = base64.b64encode(read_file(path, PICTURE)).decode()
    return f"data:{kind if kind.startswith('image/') else 'image/png'};base64,{picture}"
