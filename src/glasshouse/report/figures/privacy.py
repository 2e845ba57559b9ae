"""Draws what defences buy and cost: each attack of an adversary against test accuracy, side by side."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from glasshouse.report.figures.drawing import (
    INK,
    SIZE,
    WIDE,
    Drawing,
    chance_line,
    defence_marks,
    drawn_beside,
)
from glasshouse.report.words.names import adversary_words, attack_words, defence_words
from glasshouse.spelling import slug
from glasshouse.verdicts.measure import Measure, grouped, reach
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.tradeoff import Point, Tradeoff

FEW = 3  # attacks of one kind by one adversary that are each drawn
COLUMNS = 3  # attacks side by side


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


def privacy_figure(adversary: str, trades: Sequence[Tradeoff], colours: dict[str, str]) -> Drawing | None:
    """One adversary: each attack's gain over a blind guess against test accuracy, side by side."""
    drawable = [(trade, points) for trade in trades if (points := _placed(trade))]
    if not drawable:
        return None
    defences = list(dict.fromkeys(point.defence for _, points in drawable for point in points))
    marks = defence_marks(list(colours))

    def draws(trade: Tradeoff, points: Sequence[Point]) -> Callable[[Axes], None]:
        metric = metric_words(points[0].leak.row.metric)

        def draw(axes: Axes) -> None:
            if metric.leaks != "low":
                chance_line(axes, 0)
            for point in points:
                _draw_point(axes, point, colours.get(point.defence, INK), marks.get(point.defence, "o"))
            axes.margins(x=0.1, y=0.12)
            axes.set_title(_short_title(trade), fontsize=10.5, loc="left")
            axes.set(xlabel="test accuracy", ylabel=f"{metric.label} above chance")
            if metric.leaks == "low":  # its chance is not the same for every model; less leak is down, too
                axes.invert_yaxis()
                axes.set_ylabel(f"{metric.label}, upside down")
            if trade is drawable[-1][0]:
                _legend(axes, defences, colours, marks)

        return draw

    columns = min(COLUMNS, len(drawable))
    rows = -(-len(drawable) // columns)
    width = WIDE[0] if columns > 1 else SIZE[0]
    names = -(-len(defences) // _names_beside(defences, width))
    size = (width, 3.1 * rows + 0.23 * names + 0.2)
    title = f"{adversary_words(adversary).label}: gain over chance against test accuracy"
    return drawn_beside(slug("privacy", adversary), title, [draws(*one) for one in drawable], columns, size)


def _placed(trade: Tradeoff) -> list[Point]:
    return [p for p in trade.points if p.leak.advantage and p.accuracy and p.accuracy.value is not None]


def _short_title(trade: Tradeoff) -> str:
    return ", ".join(filter(None, (attack_words(trade.attack), trade.context)))


def _legend(axes: Axes, defences: Sequence[str], colours: dict[str, str], marks: dict[str, str]) -> None:
    """Name every defence once, under all panels."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    look = [
        Line2D([], [], color=colours.get(name, INK), marker=marks.get(name, "o"), linestyle="", markersize=6)
        for name in defences
    ]
    columns = _names_beside(defences, figure.get_figwidth())
    spaced: Any = {"handlelength": 1.2, "columnspacing": 1.4}
    words = [defence_words(name) for name in defences]
    figure.legend(look, words, loc="outside lower center", ncols=columns, **spaced)


def _names_beside(defences: Sequence[str], width: float) -> int:
    """How many names stand side by side in a legend of this many inches."""
    longest = max(len(defence_words(name)) for name in defences) * 5.4 + 36  # points for a name and its mark
    return max(1, min(5, int(width * 72 // longest)))


def _draw_point(axes: Axes, point: Point, colour: str, mark: str) -> None:
    x, y, across, up = _position(point)
    axes.plot([x, x], up, color=colour, linewidth=1.0, alpha=0.55)
    axes.plot(across, [y, y], color=colour, linewidth=1.0, alpha=0.55)
    axes.plot([x], [y], mark, color=colour, markersize=8 if point.defence == "none" else 6.5, zorder=4)


def _position(point: Point) -> tuple[float, float, tuple[float, float], tuple[float, float]]:
    """Accuracy and gain over chance, or the number itself where low ones leak, with the interval of each."""
    assert point.accuracy is not None
    assert point.accuracy.value is not None
    assert point.leak.advantage is not None
    x, (y, low, high) = point.accuracy.value, point.leak.advantage
    if metric_words(point.leak.row.metric).leaks == "low":
        y, low, high = (point.leak.known, *_ends(point.leak))
    left = x if point.accuracy.low is None else point.accuracy.low
    right = x if point.accuracy.high is None else point.accuracy.high
    return x, y, (left, right), (low, high)


def _ends(measure: Measure) -> tuple[float, float]:
    low, high = (measure.known if end is None else end for end in (measure.low, measure.high))
    return low, high
