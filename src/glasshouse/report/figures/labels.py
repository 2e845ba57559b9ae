"""Names points of a figure where there is room for the names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from glasshouse.report.figures.placement import Rectangle, nearest, place


@dataclass(frozen=True)
class Label:
    """A point in the units of the axes, what it is called, and in which colour."""

    x: float
    y: float
    text: str
    colour: str


def label_points(axes: Axes, labels: Sequence[Label]) -> None:
    """Name each point where there is room, with a line to it when the name had to move away.

    All positions are points of 1/72 inch, which the figure's resolution makes the same as its pixels.
    """
    names = [
        axes.annotate(
            label.text,
            (label.x, label.y),
            xytext=(0, 0),
            textcoords="figure points",
            fontsize=9.5,
            color=label.colour,
        )
        for label in sorted(labels, key=lambda label: -label.y)
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
