"""The figures of each section, drawn and captioned."""

from collections.abc import Iterable, Sequence

from glasshouse.exhibits import Chart, CoursePoint, Series
from glasshouse.report.figures.charts import chart_figure, undrawn
from glasshouse.report.figures.charts import wide as wide_chart
from glasshouse.report.figures.course import course_figure
from glasshouse.report.figures.panel import Panel, kept
from glasshouse.report.figures.risk import clients_figure, rounds_figure
from glasshouse.report.figures.risk import wide as wide_risk
from glasshouse.report.figures.robustness import attacks_figure, by_strength, defences_figure
from glasshouse.report.figures.roc import RocPanel, decides, indifferent, of_batches, roc_figure, roc_panels
from glasshouse.report.figures.training import training_figure
from glasshouse.report.run import Run
from glasshouse.report.words.ladder import rung_words
from glasshouse.report.words.leaks import exposure_sentence
from glasshouse.report.words.names import adversary_words, defence_words, short_names
from glasshouse.spelling import listed, number
from glasshouse.verdicts.exposure import Exposure, exposures
from glasshouse.verdicts.ladder import Ladder
from glasshouse.verdicts.measure import grouped
from glasshouse.verdicts.metrics import CENTRAL

PANELS = 12  # the most a section of a study shows; curves.json holds them all


def roc_section(run: Run, colours: dict[str, str]) -> list[Panel]:
    """The ROC curves: of an audit those that `roc_panels` chooses, of a study cell by cell.

    Curves that several adversaries share are drawn once.
    """
    if _studied(run):
        groups = grouped(
            run.curves.roc, lambda roc: of_batches(_panel_title(run, roc.attack, roc.cell), roc.unit)
        )
        chosen = [RocPanel(title, "defence", tuple(curves)) for title, curves in groups.items()][:PANELS]
    else:
        chosen = roc_panels(run.curves.roc)
    panels = []
    for alike in grouped(chosen, _curves_of).values():
        note = " ".join(filter(None, (_roc_note(alike[0]), _same_for(_whose(panel) for panel in alike[1:]))))
        panels.append(kept(run, alike[0].title, roc_figure(alike[0], colours), note))
    return panels


def training_panels(run: Run, colours: dict[str, str]) -> list[Panel]:
    """Accuracy by round: of the global model, and of the clients' own where it was measured.

    A study with charts has its own of these.
    """
    if run.study is not None and run.study.charts:
        return []
    groups = grouped(run.curves.training, lambda point: _panel_title(run, point.strategy, point.cell))
    panels = []
    for title, points in list(groups.items())[:PANELS]:
        figure = training_figure(title, points, "global", colours)
        panels.append(kept(run, f"{title}: the global model", figure))
        if any(point.acc_local is not None for point in points):
            figure = training_figure(title, points, "local", colours)
            panels.append(kept(run, f"{title}: the clients' own models, on average", figure))
    return panels


def risk_panels(run: Run) -> list[Panel]:
    """Who is at risk, and when: clients first, then rounds, for each adversary.

    Adversaries whose strongest attack gives the same risks share a figure.
    """
    panels = []
    found = exposures(run.curves.risk, "client") + exposures(run.curves.risk, "round")
    for exposure, *alike in grouped(found, _risks_of).values():
        draw = clients_figure if exposure.kind == "client" else rounds_figure
        title = f"{adversary_words(exposure.adversary or 'adversary').label}, by {exposure.kind}"
        said = (exposure_sentence(exposure), _other_attacks(exposure), _same_for(e.adversary for e in alike))
        caption = " ".join(filter(None, said))
        panels.append(kept(run, title, draw(exposure), caption, wide_risk(exposure)))
    return panels


def robustness_panels(run: Run, colours: dict[str, str]) -> list[Panel]:
    """Accuracy against eps: federated and central, then the strongest attack under each defence.

    What is measured in one norm has no place in the figure of another.
    """
    panels = []
    norms = dict.fromkeys(point.norm for point in run.curves.robustness)
    for norm in norms:
        points = [point for point in run.curves.robustness if point.norm == norm]
        bare = [point for point in points if point.defence == "none"]
        within = f", {norm}" if len(norms) > 1 else ""
        if bare:
            caption = "No defence is in force. Bands are the 95% intervals of the strongest attack."
            panels.append(kept(run, f"Accuracy against eps{within}", attacks_figure(bare), caption))
        strongest = next(iter(by_strength(points)))
        defended = [p for p in points if p.attack == strongest and p.strategy != CENTRAL]
        if len({point.defence for point in defended}) > 1:
            figure = defences_figure(defended, colours)
            named = short_names(list(dict.fromkeys(p.attack for p in points)))[strongest]
            caption = f"Attack: {named}. The band is the 95% interval of the undefended federation."
            panels.append(kept(run, f"Under each defence{within}", figure, caption))
    return panels


def course_panels(run: Run, colours: dict[str, str]) -> list[Panel]:
    """How near the images came step by step, a panel for each attack and adversary."""

    def title(point: CoursePoint) -> str:
        who = adversary_words(point.adversary).label.lower() if point.adversary else ""
        return _panel_title(run, ", ".join(filter(None, (point.attack, who))), point.cell)

    panels = []
    for named, points in list(grouped(run.curves.course, title).items())[:PANELS]:
        caption = _course_note(points)
        panels.append(kept(run, f"{named}: PSNR by step", course_figure(named, points, colours), caption))
    return panels


def ladder_panels(run: Run, ladder: Ladder) -> list[Panel]:
    """Mean PSNR on each rung, beside what the blind guess and the oracle reach."""
    steps = [*ladder.steps, *ladder.defended]
    psnr = [step.psnr for step in steps]
    series = (
        Series(
            name="rebuilt images",
            values=tuple(m.value for m in psnr),
            low=tuple(m.low for m in psnr),
            high=tuple(m.high for m in psnr),
        ),
        Series(name="mean auxiliary image (blind)", values=tuple(step.blind for step in steps)),
        Series(name="nearest auxiliary images (an oracle)", values=tuple(m.chance for m in psnr)),
    )
    chart = Chart(
        name="ladder",
        title="PSNR by rung",
        kind="bars",
        y="mean PSNR (dB)",
        categories=tuple(map(rung_words, steps)),
        series=series,
    )
    caption = (
        "From the easiest update to invert, an upper bound, to those that clients send; then defended ones."
    )
    return [kept(run, "How near the images come, rung by rung", chart_figure(chart), caption, wide=True)]


def chart_panels(run: Run) -> list[Panel]:
    """A study's own charts."""
    panels = []
    for chart in run.study.charts if run.study else ():
        missing = "Zero has no place on a logarithmic axis and is left out." if undrawn(chart) else ""
        caption = f"{chart.note} {missing}".strip()
        panels.append(kept(run, chart.title, chart_figure(chart), caption, wide_chart(chart)))
    return panels


def _curves_of(panel: RocPanel) -> tuple[object, ...]:
    """What a panel draws, whoever the adversary is."""
    return panel.by, tuple((roc.attack, roc.defence, roc.unit, roc.fpr, roc.tpr) for roc in panel.curves)


def _whose(panel: RocPanel) -> str:
    return panel.curves[0].adversary


def _risks_of(exposure: Exposure) -> tuple[object, ...]:
    """What a figure of risks draws, whoever the adversary is."""
    risks = tuple((risk.index, risk.value, risk.low, risk.high) for risk in exposure.risks)
    return exposure.kind, exposure.attack, risks


def _same_for(adversaries: Iterable[str | None]) -> str:
    """Says whose figure would look the same."""
    names = [f"the {adversary_words(name or 'adversary').label.lower()}" for name in adversaries]
    return f"It is the same for {listed(names)}." if names else ""


def _course_note(points: Sequence[CoursePoint]) -> str:
    """How many images and updates the first line is about, and how long its last step took to reach."""
    line = [point for point in points if point.defence == points[0].defence]
    last = max(line, key=lambda point: point.step)
    over = []
    if last.n is not None:
        over.append(f"{last.n} image{'s' if last.n != 1 else ''}")
    if last.updates is not None:
        over.append(f"{last.updates} attacked update{'s' if last.updates != 1 else ''}")
    of = f"Mean over {' of '.join(over)}. " if over else ""
    return f"{of}Step {last.step} was reached after {number(last.seconds, 's')} on an update."


def _roc_note(panel: RocPanel) -> str:
    first, drawn = panel.curves[0], [roc for roc in panel.curves if not indifferent(roc)]
    which = "members" if first.unit == 1 else "batches of members"
    counts = f"{first.members} {which}, {first.nonmembers} others"
    if not drawn:
        note = f"{counts}."
    elif all(decides(roc) for roc in drawn):
        says = "These attacks say" if panel.by == "attack" and len(drawn) > 1 else "This attack says"
        note = f"{counts}. {says} only yes or no: a point, no curve."
    else:
        note = f"{counts}: rates below {1 / max(1, first.nonmembers):.2g} cannot be measured."
        if panel.by == "attack" and any(decides(roc) for roc in drawn):
            note += " A point stands for an attack that says only yes or no."
    if panel.by == "attack" and all(roc.defence == "none" for roc in panel.curves):
        note = f"The undefended model. {note}"
    return f"{note} {_without_curve(panel)}".strip()


def _without_curve(panel: RocPanel) -> str:
    """Names the attacks, or the defences an attack ran into, that leave no curve to draw."""
    flat = [roc for roc in panel.curves if indifferent(roc)]
    if not flat:
        return ""
    if panel.by == "attack":
        named = listed([roc.attack for roc in flat])
        return f"No curve: {named} {'gives' if len(flat) == 1 else 'give'} all the same score."
    under = listed([defence_words(roc.defence) for roc in flat])
    return f"No curve: {flat[0].attack} gives all the same score ({under})."


def _other_attacks(exposure: Exposure) -> str:
    if not exposure.others:
        return ""
    named = listed([f"{attack} ({number(mean)})" for attack, mean in exposure.others])
    return f"Attack: {exposure.attack}, the highest on average; weaker: {named}."


def _panel_title(run: Run, name: str, cell: str | None) -> str:
    """An audit draws its defences together; a study's cells are settings apart, so each has a panel."""
    return f"{cell}, {name}" if _studied(run) and cell else name


def _studied(run: Run) -> bool:
    return any(row.source != "audit" for row in run.rows)
