"""The page of one run, built from its folder alone."""

import base64
import json
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glasshouse.exhibits import Picture
from glasshouse.report import figures, words
from glasshouse.report.answers import Card, cards, noticed, overall
from glasshouse.report.caveats import assumptions_table, caveats
from glasshouse.report.drawing import Drawings
from glasshouse.report.measure import Measure, federated, pooled
from glasshouse.report.panels import (
    chart_panels,
    risk_panels,
    robustness_panels,
    roc_section,
    tradeoff_panels,
    training_panels,
)
from glasshouse.report.robustness import comparison, comparison_table, defences_table
from glasshouse.report.run import Run, read_run
from glasshouse.report.study import study_sentence, study_tables
from glasshouse.report.table import findings_table, remains_table
from glasshouse.report.tradeoff import tradeoffs
from glasshouse.spelling import DASH, slug
from glasshouse.store import write_text
from glasshouse.verdicts.metrics import CENTRAL, VETTING, family_words, metric_words

_SECTIONS = (
    ("study_tables", "study", "Printed and measured"),
    ("charts", "charts", "Figures"),
    ("cards", "answers", "Answers"),
    ("risks", "risk", "Risk"),
    ("robustness", "robustness", "Robustness"),
    ("panels", "defences", "Defences"),
    ("rocs", "roc", "ROC"),
    ("trainings", "training", "Training"),
    ("gallery", "gallery", "Gallery"),
    (None, "all", "Findings"),
    (None, "setup", "Setup"),
    (None, "caveats", "Caveats"),
)


def write_report(folder: Path) -> Path:
    """Write `report.html` and `figures/` into the run folder; returns the page's path."""
    run = read_run(Path(folder))
    drawings = Drawings(run.folder / "figures")
    page = render("page.html", **_page(run, drawings))
    write_text(run.folder / "report.html", page)
    return run.folder / "report.html"


@dataclass(frozen=True)
class Scale:
    """Positions on a bar whose ends are `low` and `high`, as CSS."""

    low: float
    high: float

    def at(self, value: float) -> str:
        """A mark at `value`."""
        return f"left:{self._percent(value):.2f}%"

    def between(self, first: float, second: float) -> str:
        """A stretch between two values, in either order."""
        left, right = sorted((self._percent(first), self._percent(second)))
        return f"left:{left:.2f}%;width:{right - left:.2f}%"

    def _percent(self, value: float) -> float:
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))


def render(template: str, **content: Any) -> str:
    """A template of this package as one self-contained page."""
    environment = Environment(
        loader=PackageLoader("glasshouse", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["anchor"] = lambda name: slug("adversary", name)
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    environment.globals.update(
        scale=lambda span: Scale(*span),
        words=words,
        metric_words=metric_words,
        family_words=family_words,
        VETTING=VETTING,
        noticed=noticed,
        style=_asset("page.css"),
        script=_asset("page.js"),
    )
    return environment.get_template(template).render(**content)


def _page(run: Run, drawings: Drawings) -> dict[str, Any]:
    measures = pooled(run.rows)
    audited = [m for m in measures if m.row.source == "audit"]
    studied = [m for m in measures if m.row.source != "audit"]
    colours = figures.defence_colours([row.defence or "none" for row in run.rows])
    on_trial = federated(audited)
    adversaries, trades = cards(on_trial), tradeoffs(on_trial)
    robust = comparison(audited, run.curves.robustness)
    content = {
        "run": run,
        "title": _title(run, bool(studied)),
        "facts": facts(run, measures),
        "overall": overall(adversaries) if audited else study_sentence(studied),
        "study_tables": study_tables(run, studied),
        "charts": chart_panels(run, drawings),
        "cards": adversaries,
        "untried": _untried(adversaries),
        "risks": risk_panels(run, drawings),
        "robustness": robust,
        "robustness_tables": [comparison_table(robust), defences_table(robust)] if robust else [],
        "robustness_panels": robustness_panels(run, drawings, colours),
        "panels": tradeoff_panels(trades, drawings, colours),
        "remains": remains_table(trades),
        "rocs": roc_section(run, drawings, colours),
        "trainings": training_panels(run, drawings, colours),
        "gallery": _gallery(run),
        "findings": findings_table(run.rows, [pooled([row])[0] for row in run.rows]),
        "caveats": caveats(run, measures),
        "assumptions": assumptions_table(measures),
    }
    content["sections"] = [(anchor, label) for key, anchor, label in _SECTIONS if key is None or content[key]]
    return content


def facts(run: Run, measures: Sequence[Measure]) -> list[tuple[str, str]]:
    """What was audited: data, model, strategy, clients and accuracy, as far as the folder says."""
    made = []
    for key in ("data", "model", "strategy"):
        seen = dict.fromkeys(str(getattr(row, key)) for row in run.rows if getattr(row, key))
        if len(seen) > 1:
            seen.pop(CENTRAL, None)
        if seen:
            made.append((key, ", ".join(seen)))
    clients = run.setting("clients")
    if isinstance(clients, int):
        made.append(("clients", str(clients)))
    for where, central in (("test accuracy", False), ("trained centrally", True)):
        made += [
            (where, DASH if m.value is None else f"{m.value * 100:.1f}%")
            for m in measures
            if m.row.source == "audit"
            and m.row.metric == "test-accuracy"
            and (m.row.defence or "none") == "none"
            and (m.row.strategy == CENTRAL) == central
        ]
    return made + _sent(run)


def _sent(run: Run) -> list[tuple[str, str]]:
    """What travels in the last round without defences, when a strategy sends all that it ever does."""
    bare = [p for p in run.curves.training if p.defence == "none" and p.strategy != CENTRAL and p.down]
    if not bare:
        return []
    return [
        ("sent a round", f"{bare[-1].down / 1e3:,.1f} kB to each client, {bare[-1].up / 1e3:,.1f} kB back")
    ]


def _title(run: Run, studied: bool) -> str:
    if run.study and run.study.title:
        return run.study.title
    return "Printed and measured" if studied else "What this federation gives away"


def _untried(adversaries: Sequence[Card]) -> list[str]:
    tried = {card.name for card in adversaries}
    return [entry.label.lower() for name, entry in words.ADVERSARIES.items() if name not in tried]


def _gallery(run: Run) -> list[tuple[str, list[dict[str, Any]]]]:
    """The pictures of each attack, under its name, its adversary's and its defence's."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for exhibit in run.curves.gallery:
        who = words.adversary_words(exhibit.adversary).label if exhibit.adversary else ""
        under = "" if exhibit.defence == "none" else words.defence_words(exhibit.defence)
        title = ", ".join(filter(None, (exhibit.attack, who.lower(), under)))
        groups.setdefault(title, []).append(_exhibit(run.folder, exhibit))
    return list(groups.items())


def _exhibit(folder: Path, exhibit: Picture) -> dict[str, Any]:
    return {
        "exhibit": exhibit,
        "original": _data_uri(folder / exhibit.original),
        "result": _data_uri(folder / exhibit.result),
    }


def _data_uri(path: Path) -> str | None:
    if not path.is_file():
        return None
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _asset(name: str) -> Markup:
    return Markup((Path(__file__).parent / name).read_text(encoding="utf-8"))
