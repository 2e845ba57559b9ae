"""The figures of a report, each as SVG for the page, SVG to keep and PNG."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from glasshouse.report.placement import Rectangle, nearest, place
from glasshouse.report.run import Roc, TrainingPoint
from glasshouse.report.tradeoff import Point, Tradeoff
from glasshouse.report.words import defence_words, metric_words, slug

INK = "#1c2127"
ACCENT = "#b3401b"
SERIES = ("#2f6db3", "#2e7d5b", "#8a5aa8", "#9a6a00", "#4f7f8f", "#b0527f", "#6b7280", "#5b8c2a")
SIZE = (5.1, 3.9)
TALL = (5.1, 4.8)
DASHED = (0, (4, 3))
Ends = tuple[tuple[float, float], tuple[float, float]]
_FONT = "DejaVu Sans"
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": _FONT,
    "font.size": 10.5,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.constrained_layout.use": True,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure: `inline` follows the page's colours, `svg` and `png` are files to keep."""

    name: str
    title: str
    inline: str
    svg: bytes
    png: bytes


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
    return _drawing(name, f"{tradeoff.title}: gain over chance against test accuracy", draw)


def roc_figure(attack: str, curves: Sequence[Roc], colours: dict[str, str]) -> Drawing:
    """ROC curves of one attack on log-log axes, a line for each defence, with the chance diagonal."""
    floor = min(0.5 / max(1, roc.nonmembers) for roc in curves)
    floor = min(floor, 0.5 / max(1, min(roc.members for roc in curves)), 0.05)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot(
            [floor, 1], [floor, 1], color=INK, linewidth=0.9, linestyle=(0, (4, 3)), label="blind guess"
        )
        for roc in curves:
            bare = roc.defence == "none"
            look: Any = {"color": colours.get(roc.defence, INK), "label": defence_words(roc.defence)}
            look["zorder"] = 3 if bare else 2
            if decides(roc):
                points = sorted(_inner(roc))
                accused, found = [point[0] for point in points], [point[1] for point in points]
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
        _legend_below(figure, axes)

    return _drawing(slug("roc", attack), f"ROC of {attack}, log-log", draw, TALL)


def decides(roc: Roc) -> bool:
    """Whether the attack only says yes or no, so that its curve is a point and no line."""
    return len(_inner(roc)) <= 1


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
        _legend_below(figure, axes)

    return _drawing(slug("training", title, whose), f"Accuracy by round, {title}, {whose}", draw, TALL)


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


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, handlelength=1.6, columnspacing=1.4)


def _by_round(points: Sequence[TrainingPoint], whose: str) -> tuple[list[int], list[float]]:
    """Rounds and mean accuracy at each; the mean is over repeated seeds or cells."""
    seen: dict[int, list[float]] = {}
    for point in points:
        value = point.acc_global if whose == "global" else point.acc_local
        if value is not None:
            seen.setdefault(point.round, []).append(value)
    rounds = sorted(seen)
    return rounds, [sum(seen[r]) / len(seen[r]) for r in rounds]


def _drawing(
    name: str, title: str, draw: Callable[[Figure], None], size: tuple[float, float] = SIZE
) -> Drawing:
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=size, dpi=72)
        FigureCanvasAgg(figure)
        draw(figure)
        svg, png = io.StringIO(), io.BytesIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(svg, format="svg", transparent=True, metadata=nothing)
        figure.savefig(png, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    text = svg.getvalue()
    return Drawing(name, title, _for_page(text, name, title), text.encode(), png.getvalue())


def _for_page(svg: str, name: str, title: str) -> str:
    """The bare <svg> element, its colours those of the page, its ids unlike any other figure's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace(INK, "currentColor").replace(ACCENT, "var(--accent)")
    for index, colour in enumerate(SERIES, 1):
        svg = svg.replace(colour, f"var(--series-{index})")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"(font: [^;\"]*?px )[^;\"]*", r"\1system-ui, sans-serif", svg)
    # Without a fixed width the figure takes the width of its box.
    opening = re.sub(r'\s(width|height)="[^"]*"', "", svg[: svg.index(">") + 1])
    label = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    opening = opening.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return opening + svg[svg.index(">") + 1 :]
