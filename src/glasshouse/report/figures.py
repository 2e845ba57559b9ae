"""The figures of an audit: what defences buy, ROC curves and training."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from glasshouse.exhibits import Roc, TrainingPoint
from glasshouse.report.drawing import (
    ACCENT,
    DASHED,
    INK,
    PALETTE,
    SERIES,
    TALL,
    Drawing,
    drawn,
    legend_below,
)
from glasshouse.report.placement import Rectangle, nearest, place
from glasshouse.report.rocs import RocPanel, area
from glasshouse.report.tradeoff import Point, Tradeoff
from glasshouse.report.words import defence_words
from glasshouse.spelling import slug
from glasshouse.verdicts.metrics import metric_words

Ends = tuple[tuple[float, float], tuple[float, float]]


def privacy_figure(tradeoff: Tradeoff, colours: dict[str, str]) -> Drawing | None:
    """One attack: gain over a blind guess against test accuracy, a point for each defence."""
    points = [p for p in tradeoff.points if p.leak.advantage and p.accuracy and p.accuracy.value is not None]
    if not points:
        return None
    metric = metric_words(points[0].leak.row.metric)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhline(0, color=INK, linewidth=0.9, linestyle=DASHED)
        marks = [end for point in points for end in _draw_point(axes, point, colours.get(point.defence, INK))]
        axes.margins(x=0.14, y=0.14)
        axes.set_xlabel("test accuracy")
        axes.set_ylabel(f"{metric.label} {'below' if metric.leaks == 'low' else 'above'} chance")
        figure.canvas.draw()
        left, right = axes.get_xlim()
        marks.append(((left, 0.0), (right, 0.0)))
        figure.set_layout_engine("none")  # the labels are placed in the layout as it is, and must not move it
        _label_points(axes, points, marks, colours)

    name = slug("privacy", tradeoff.adversary, tradeoff.attack, tradeoff.context)
    return drawn(name, f"{tradeoff.title}: gain over chance against test accuracy", draw)


def roc_figure(panel: RocPanel, colours: dict[str, str]) -> Drawing | None:
    """ROC curves on log-log axes, a line for each defence or attack, with the chance diagonal.

    An attack that tells nobody apart has no curve; None where no attack has one.
    """
    curves = [roc for roc in panel.curves if not indifferent(roc)]
    if not curves:
        return None
    floor = min(0.5 / max(1, roc.nonmembers) for roc in curves)
    floor = min(floor, 0.5 / max(1, min(roc.members for roc in curves)), 0.05)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([floor, 1], [floor, 1], color=INK, linewidth=0.9, linestyle=DASHED, label="blind guess")
        for rank, roc in enumerate(curves):
            bare = roc.defence == "none" if panel.by == "defence" else rank == 0
            look: Any = {"color": colours.get(roc.defence, INK), "label": defence_words(roc.defence)}
            if panel.by == "attack":
                look = {"color": PALETTE[rank % len(PALETTE)], "label": f"{roc.attack}, AUC {area(roc):.3f}"}
            look["zorder"] = 3 if bare else 2
            if decides(roc):
                # Zero has no place on a logarithmic axis; unclipped it would drag the layout along.
                accused, found = ([max(rate, floor)] for rate in _inner(roc).pop())
                axes.plot(accused, found, "o", markersize=8 if bare else 6, clip_on=False, **look)
            else:
                accused, found = ([max(rate, floor) for rate in rates] for rates in (roc.fpr, roc.tpr))
                axes.step(accused, found, where="post", linewidth=2.2 if bare else 1.2, **look)
        for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            scale("log")
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlim(floor, 1)
        axes.set_ylim(floor, 1.15)
        axes.set_xlabel("non-members wrongly accused (FPR)")
        axes.set_ylabel("members found (TPR)")
        legend_below(figure, axes)

    tall = max(TALL[1], 3.9 + 0.2 * len(curves))  # the legend may need a line for each
    return drawn(slug("roc", panel.title), f"ROC of {panel.title}, log-log", draw, (TALL[0], tall))


def decides(roc: Roc) -> bool:
    """Whether the attack only says yes or no, so that its curve is a point and no line."""
    return len(_inner(roc)) == 1


def indifferent(roc: Roc) -> bool:
    """Whether the attack gives everybody the same score, so that there is no curve to draw."""
    return not _inner(roc)


def training_figure(
    title: str, points: Sequence[TrainingPoint], whose: Literal["global", "local"], colours: dict[str, str]
) -> Drawing:
    """Accuracy by round, a line for each defence: of the global model, or of the clients' own on average."""
    lines: dict[str, list[TrainingPoint]] = {}
    for point in points:
        lines.setdefault(point.defence, []).append(point)
    accuracies = [a for point in points for a in (point.acc_global, point.acc_local) if a is not None]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for defence, line in lines.items():
            rounds, accuracy = _by_round(line, whose)
            bare = defence == "none"
            axes.plot(
                rounds,
                accuracy,
                color=colours.get(defence, INK),
                linewidth=2.2 if bare else 1.2,
                zorder=3 if bare else 2,
                label=defence_words(defence),
            )
        if accuracies:  # the same for both kinds, to compare at a glance
            axes.set_ylim(min(accuracies) - 0.03, min(1.02, max(accuracies) + 0.03))
        axes.set_xlabel("round")
        axes.set_ylabel("accuracy")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_below(figure, axes)

    return drawn(slug("training", title, whose), f"Accuracy by round, {title}, {whose}", draw, TALL)


def defence_colours(defences: Sequence[str]) -> dict[str, str]:
    """The same colour for a defence in every figure; the accent for no defence."""
    others = [defence for defence in dict.fromkeys(defences) if defence != "none"]
    return {"none": ACCENT} | {d: SERIES[i % len(SERIES)] for i, d in enumerate(others)}


def _inner(roc: Roc) -> set[tuple[float, float]]:
    """The points of a curve but for its ends, where nobody or everybody is accused."""
    return set(zip(roc.fpr, roc.tpr)) - {(0.0, 0.0), (1.0, 1.0)}


def _draw_point(axes: Axes, point: Point, colour: str) -> list[Ends]:
    """Draw a point and its intervals; the data coordinates of the mark and of each line's ends."""
    x, y, across, up = _position(point)
    axes.plot([x, x], up, color=colour, linewidth=1.0, alpha=0.55)
    axes.plot(across, [y, y], color=colour, linewidth=1.0, alpha=0.55)
    axes.plot([x], [y], "o", color=colour, markersize=8 if point.defence == "none" else 6.5, zorder=4)
    return [((x, y), (x, y)), ((x, up[0]), (x, up[1])), ((across[0], y), (across[1], y))]


def _position(point: Point) -> tuple[float, float, tuple[float, float], tuple[float, float]]:
    """Accuracy and gain, with the interval of each."""
    assert point.accuracy is not None
    assert point.accuracy.value is not None
    assert point.leak.advantage is not None
    x, (y, low, high) = point.accuracy.value, point.leak.advantage
    left = x if point.accuracy.low is None else point.accuracy.low
    right = x if point.accuracy.high is None else point.accuracy.high
    return x, y, (left, right), (low, high)


def _label_points(
    axes: Axes, points: Sequence[Point], marks: Sequence[Ends], colours: dict[str, str]
) -> None:
    """Name each point where there is room, with a line to it when the name had to move away.

    All positions are points of 1/72 inch, which the figure's resolution makes the same as its pixels.
    """
    order = sorted(points, key=lambda point: -_position(point)[1])
    names = [
        axes.annotate(
            defence_words(point.defence),
            _position(point)[:2],
            xytext=(0, 0),
            textcoords="figure points",
            fontsize=9.5,
            color=colours.get(point.defence, INK),
        )
        for point in order
    ]
    sizes = [(box.width + 3, box.height + 2) for box in (name.get_window_extent() for name in names)]
    anchors = [_pixels(axes, name.xy) for name in names]
    taken = [_occupied(_pixels(axes, first), _pixels(axes, last)) for first, last in marks]
    window = axes.get_window_extent()
    frame = Rectangle(window.x0, window.y0, window.width, window.height)
    for name, anchor, room in zip(names, anchors, place(anchors, sizes, taken, frame)):
        name.set_position((room.x, room.y))
        end = nearest(room, anchor)
        if math.dist(end, anchor) > 14:
            line = {
                "arrowstyle": "-",
                "color": name.get_color(),
                "linewidth": 0.6,
                "shrinkA": 0,
                "shrinkB": 4,
            }
            axes.annotate("", name.xy, xytext=end, textcoords="figure points", arrowprops=line)


def _pixels(axes: Axes, place: tuple[float, float]) -> tuple[float, float]:
    x, y = axes.transData.transform(place)
    return float(x), float(y)


def _occupied(first: tuple[float, float], last: tuple[float, float]) -> Rectangle:
    pad = 5.0 if first == last else 0.5  # a mark has its size, a line only its width
    return Rectangle(
        first[0] - pad, first[1] - pad, last[0] - first[0] + 2 * pad, last[1] - first[1] + 2 * pad
    )


def _by_round(points: Sequence[TrainingPoint], whose: str) -> tuple[list[int], list[float]]:
    """Rounds and mean accuracy at each; the mean is over repeated seeds or cells."""
    seen: dict[int, list[float]] = {}
    for point in points:
        value = point.acc_global if whose == "global" else point.acc_local
        if value is not None:
            seen.setdefault(point.round, []).append(value)
    rounds = sorted(seen)
    return rounds, [sum(seen[r]) / len(seen[r]) for r in rounds]
