"""Draws accuracy by round."""

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from glasshouse.exhibits import TrainingPoint
from glasshouse.report.figures.drawing import INK, TALL, Drawing, defence_lines, drawn, legend_below
from glasshouse.report.words.names import defence_words
from glasshouse.spelling import slug
from glasshouse.verdicts.measure import grouped


def training_figure(
    title: str, points: Sequence[TrainingPoint], whose: Literal["global", "local"], colours: dict[str, str]
) -> Drawing:
    """Accuracy by round, a line for each defence: of the global model, or of the clients' own on average."""
    accuracies = [a for point in points for a in (point.acc_global, point.acc_local) if a is not None]

    lines = defence_lines(colours)

    def draw(axes: Axes) -> None:
        for defence, line in grouped(points, lambda point: point.defence).items():
            bare = defence == "none"
            look: Any = {"color": colours.get(defence, INK), "label": defence_words(defence)}
            look |= {"linewidth": 2.2 if bare else 1.2, "zorder": 3 if bare else 2}
            look["linestyle"] = lines.get(defence, "-")
            axes.plot(*_by_round(line, whose), **look)
        if accuracies:  # the same for both kinds, to compare at a glance
            axes.set_ylim(min(accuracies) - 0.03, min(1.02, max(accuracies) + 0.03))
        axes.set(xlabel="round", ylabel="accuracy")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_below(axes)

    defences = {point.defence for point in points}
    size = (TALL[0], max(TALL[1], 3.9 + 0.2 * len(defences)))  # the legend may need a line for each
    return drawn(slug("training", title, whose), f"Accuracy by round, {title}, {whose}", draw, size)


def _by_round(points: Sequence[TrainingPoint], whose: str) -> tuple[list[int], list[float]]:
    """Rounds and mean accuracy at each; the mean is over repeated seeds or cells."""
    seen: dict[int, list[float]] = {}
    for point in points:
        value = point.acc_global if whose == "global" else point.acc_local
        if value is not None:
            seen.setdefault(point.round, []).append(value)
    rounds = sorted(seen)
    return rounds, [sum(seen[r]) / len(seen[r]) for r in rounds]
