"""Draws the accuracy that attacks leave against how far they may move an image."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from glasshouse.exhibits import Robustness
from glasshouse.report.figures import drawing
from glasshouse.report.figures.drawing import ACCENT, INK, SERIES, TALL, Drawing, defence_lines, drawn, gapped
from glasshouse.report.words.names import defence_words, short_names
from glasshouse.spelling import slug
from glasshouse.verdicts.metrics import CENTRAL

FEW = 8  # limits whose numbers fit under the axis
_STYLES: Any = ("-", drawing.DASHED, (0, (1, 1.6)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
_NOISE = SERIES[6]
_MODELS = {False: ("federated", ACCENT), True: ("trained centrally", SERIES[0])}
_REACH = {"linf": "eps: how far each pixel may move", "l2": "eps: how far an image may move (L2 norm)"}


def attacks_figure(points: Sequence[Robustness]) -> Drawing:
    """Undefended: a colour for each model, a line style for each attack, the strongest solid.

    Only the strongest has its intervals as a band: those of all would hide one another.
    """
    attacks = by_strength(points)
    names = short_names(attacks)

    def draw(axes: Axes) -> None:
        _draw_noise(axes, [p for p in points if p.attack == attacks[0] and p.strategy != CENTRAL])
        for central, (_, colour) in _MODELS.items():
            for rank, attack in enumerate(attacks):
                line = [p for p in points if p.attack == attack and (p.strategy == CENTRAL) == central]
                style, first = _STYLES[rank % len(_STYLES)], rank == 0
                _draw_line(axes, line, colour, style, 2.2 if first else 1.4, band=first)
        for central in sorted({p.strategy == CENTRAL for p in points}):
            label, colour = _MODELS[central]
            named = label if any(p.strategy for p in points) else "the model"
            axes.plot([], [], color=colour, linewidth=2.2, label=named)
        for rank, attack in enumerate(attacks):
            axes.plot([], [], color=INK, linestyle=_STYLES[rank % len(_STYLES)], label=names[attack])
        _finish(axes, points)

    name = slug("robustness", points[0].norm)
    return drawn(name, "Accuracy against eps, federated and central", draw, TALL)


def defences_figure(points: Sequence[Robustness], colours: dict[str, str]) -> Drawing:
    """One attack on the federated model under each defence, a colour or dashes for each."""
    lines = defence_lines(colours)

    def draw(axes: Axes) -> None:
        for defence in dict.fromkeys(p.defence for p in points):
            line = [p for p in points if p.defence == defence]
            bare = defence == "none"
            look = {"label": defence_words(defence), "zorder": 4 if bare else 3}
            colour, dashes = colours.get(defence, INK), lines.get(defence, "-")
            _draw_line(axes, line, colour, dashes, 2.2 if bare else 1.3, band=bare, **look)
        _finish(axes, points)

    name = slug("robustness-defences", points[0].norm)
    title = f"Accuracy against eps under each defence, {points[0].attack}"
    tall = max(TALL[1], 3.9 + 0.2 * len({p.defence for p in points}))  # the legend may need a line for each
    return drawn(name, title, draw, (TALL[0], tall))


def by_strength(points: Sequence[Robustness]) -> list[str]:
    """The attacks from the strongest to the weakest, by the mean accuracy they leave the federated model."""
    left: dict[str, list[float]] = {}
    for point in points:
        left.setdefault(point.attack, [])
        if point.strategy != CENTRAL and point.value is not None and point.eps > 0:
            left[point.attack].append(point.value)
    means = {attack: sum(values) / len(values) if values else math.inf for attack, values in left.items()}
    return sorted(means, key=lambda attack: means[attack])


def _draw_line(
    axes: Axes,
    points: Sequence[Robustness],
    colour: str,
    style: Any,
    width: float,
    *,
    band: bool,
    **look: Any,
) -> None:
    line = sorted((p for p in points if p.value is not None), key=lambda p: p.eps)
    reach = [p.eps for p in line]
    if band:
        ends = (gapped(p.low for p in line), gapped(p.high for p in line))
        axes.fill_between(reach, *ends, color=colour, alpha=0.14, linewidth=0)
    heights: Any = [p.value for p in line]
    look = {"zorder": 3} | look
    axes.plot(reach, heights, color=colour, linestyle=style, linewidth=width, **look)
    axes.plot(reach, heights, "o", color=colour, markersize=2.2 * width, zorder=look["zorder"])


def _draw_noise(axes: Axes, points: Sequence[Robustness]) -> None:
    line = sorted((p for p in points if p.chance is not None), key=lambda p: p.eps)
    if line:
        heights: Any = [p.chance for p in line]
        axes.plot([p.eps for p in line], heights, color=_NOISE, linewidth=1.0, label="noise of the same size")


def _finish(axes: Axes, points: Sequence[Robustness]) -> None:
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(left=0)
    limits = sorted({point.eps for point in points})
    if len(limits) <= FEW:
        axes.set_xticks(limits, [f"{limit:g}" for limit in limits])
    axes.set(xlabel=_REACH.get(points[0].norm, "eps"), ylabel="test images classified right")
    drawing.legend_below(axes)
