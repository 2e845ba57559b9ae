"""Draws what defences buy and cost: one attack's gain over a blind guess against test accuracy."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from glasshouse.report.figures.drawing import INK, Drawing, chance_line, drawn
from glasshouse.report.figures.placement import Rectangle, nearest, place
from glasshouse.report.words.leaks import tradeoff_title
from glasshouse.report.words.names import defence_words
from glasshouse.spelling import slug
from glasshouse.verdicts.measure import grouped, reach
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.tradeoff import Point, Tradeoff

FEW = 3  # attacks of one kind by one adversary that are each drawn


def drawn_tradeoffs(tradeoffs: Sequence[Tradeoff]) -> list[tuple[Tradeoff, list[Tradeoff]]]:
    """The tradeoffs to draw, each with those it stands for.

    An attack tried under no defence has nothing to weigh, so it is drawn only where no attack was. Where an
    adversary has more than `FEW` attacks of a family, the one that gets furthest stands for all.
    """
    compared = [tradeoff for tradeoff in tradeoffs if len(tradeoff.points) > 1]
    groups = grouped(compared or tradeoffs, lambda trade: (trade.adversary, trade.family, trade.context))
    chosen: list[tuple[Tradeoff, list[Tradeoff]]] = []
    for group in groups.values():
        if len(group) <= FEW:
            chosen += [(tradeoff, []) for tradeoff in group]
            continue
        best = max(group, key=lambda tradeoff: reach(tradeoff.points[0].leak))
        chosen.append((best, [tradeoff for tradeoff in group if tradeoff is not best]))
    return chosen


def privacy_figure(tradeoff: Tradeoff, colours: dict[str, str]) -> Drawing | None:
    """One attack: gain over a blind guess against test accuracy, a point for each defence."""
    points = [p for p in tradeoff.points if p.leak.advantage and p.accuracy and p.accuracy.value is not None]
    if not points:
        return None
    metric = metric_words(points[0].leak.row.metric)

    def draw(axes: Axes) -> None:
        chance_line(axes, 0)
        for point in points:
            _draw_point(axes, point, colours.get(point.defence, INK))
        axes.margins(x=0.14, y=0.14)
        side = "below" if metric.leaks == "low" else "above"
        axes.set(xlabel="test accuracy", ylabel=f"{metric.label} {side} chance")

    def name_points(axes: Axes) -> None:
        _label_points(axes, points, colours)

    name = slug("privacy", tradeoff.adversary, tradeoff.attack, tradeoff.context)
    title = f"{tradeoff_title(tradeoff)}: gain over chance against test accuracy"
    return drawn(name, title, draw, finish=name_points)


def _draw_point(axes: Axes, point: Point, colour: str) -> None:
    x, y, across, up = _position(point)
    axes.plot([x, x], up, color=colour, linewidth=1.0, alpha=0.55)
    axes.plot(across, [y, y], color=colour, linewidth=1.0, alpha=0.55)
    axes.plot([x], [y], "o", color=colour, markersize=8 if point.defence == "none" else 6.5, zorder=4)


def _position(point: Point) -> tuple[float, float, tuple[float, float], tuple[float, float]]:
    """Accuracy and gain, with the interval of each."""
    assert point.accuracy is not None
    assert point.accuracy.value is not None
    assert point.leak.advantage is not None
    x, (y, low, high) = point.accuracy.value, point.leak.advantage
    left = x if point.accuracy.low is None else point.accuracy.low
    right = x if point.accuracy.high is None else point.accuracy.high
    return x, y, (left, right), (low, high)


def _label_points(axes: Axes, points: Sequence[Point], colours: dict[str, str]) -> None:
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
    anchors = [(float(x), float(y)) for x, y in axes.transData.transform([name.xy for name in names])]
    taken = [_occupied(line) for line in axes.lines]
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


def _occupied(line: Line2D) -> Rectangle:
    ends = line.get_transform().transform(line.get_xydata())
    (left, bottom), (right, top) = ends[0], ends[-1]
    pad = 5.0 if len(ends) == 1 else 0.5  # a mark has its size, a line only its width
    return Rectangle(left - pad, bottom - pad, right - left + 2 * pad, top - bottom + 2 * pad)
