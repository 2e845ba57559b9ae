"""Draws how near rebuilt images came, step by step."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from glasshouse.exhibits import CoursePoint
from glasshouse.report.figures.drawing import INK, TALL, Drawing, chance_line, drawn, legend_below
from glasshouse.report.words.names import defence_words
from glasshouse.spelling import slug
from glasshouse.verdicts.measure import grouped

_DOTTED: Any = (0, (1, 2))
MARKS = 40  # points of a line that are marked


def course_figure(title: str, points: Sequence[CoursePoint], colours: dict[str, str]) -> Drawing:
    """Mean PSNR by step, a line for each defence; dashed and dotted is what the auxiliary images reach.

    Those two are of the first line: the defences leave the images as they are.
    """
    lines = grouped(points, lambda point: point.defence)

    def draw(axes: Axes) -> None:
        for defence, line in lines.items():
            bare = defence == "none"
            look: Any = {"color": colours.get(defence, INK), "label": defence_words(defence)}
            look |= {"linewidth": 2.2 if bare else 1.2, "zorder": 3 if bare else 2}
            marks = "o" if len(line) <= MARKS else ""
            steps, heights = zip(*sorted((point.step, point.psnr) for point in line))
            axes.plot(steps, heights, marker=marks, markersize=4 if bare else 3, **look)
        first = points[0]
        if first.chance is not None:
            chance_line(axes, first.chance, label="nearest auxiliary images (an oracle)", zorder=1)
        if first.mean_image is not None:
            look = {"color": INK, "linewidth": 0.9, "linestyle": _DOTTED, "zorder": 1}
            axes.axhline(first.mean_image, label="mean auxiliary image (blind)", **look)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="step", ylabel="mean PSNR (dB)")
        legend_below(axes)

    return drawn(slug("course", title), f"PSNR by step, {title}", draw, TALL)
