"""Draws privacy against accuracy: the worst leak under each defence beside the accuracy it leaves."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from glasshouse.report.figures.drawing import DASHED, INK, WIDE, Drawing, defence_marks, drawn
from glasshouse.report.figures.labels import Label, label_points
from glasshouse.report.words.names import defence_words
from glasshouse.verdicts.frontier import Choice, Frontier
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.outcome import degree, strongest

GRADES = ("slight", "moderate", "severe", "total")
NAMED = 8
"""Points that have room for their names; more of them are numbered."""


@dataclass(frozen=True)
class Place:
    """Where a defence stands: its accuracy, and how bad the worst leak is shown to be and may be."""

    choice: Choice
    worst: Measure
    accuracy: float
    shown: float
    possible: float


def places(frontier: Frontier) -> list[Place]:
    """Every defence with an accuracy and an attack that was tried."""
    found = []
    for choice in frontier.choices:
        worst = strongest([m for m in choice.leaks.values() if m.value is not None])
        if worst is None or choice.accuracy is None or choice.accuracy.value is None:
            continue
        shown = degree(worst) or 0.0
        possible = max(shown, degree(worst, "possible") or shown)
        found.append(Place(choice, worst, choice.accuracy.value, shown, possible))
    return found


def undominated(drawable: Sequence[Place]) -> list[Place]:
    """Those that no other dominates, the least accurate first."""
    return sorted((one for one in drawable if not one.choice.dominated_by), key=lambda one: one.accuracy)


def point_names(best: Sequence[Place]) -> list[str]:
    """What stands beside each point: its defence, or a number where there are many."""
    if len(best) > NAMED:
        return [str(place) for place in range(1, len(best) + 1)]
    return [defence_words(one.choice.defence) for one in best]


def frontier_figure(drawable: Sequence[Place], colours: dict[str, str]) -> Drawing | None:
    """A point for each defence; those that no other dominates are filled, named and joined."""
    if len(drawable) < 2:
        return None
    marks = defence_marks(list(colours))
    best = undominated(drawable)

    def draw(axes: Axes) -> None:
        for level in range(1, len(GRADES)):
            axes.axhline(level, color=INK, linewidth=0.5, alpha=0.35, linestyle=DASHED)
        axes.plot([p.accuracy for p in best], [p.shown for p in best], color=INK, linewidth=0.8, alpha=0.5)
        for one in drawable:
            _draw_place(axes, one, colours.get(one.choice.defence, INK), marks.get(one.choice.defence, "o"))
        axes.set_ylim(-0.15, 4.1)
        axes.set_yticks([level + 0.5 for level in range(len(GRADES))], GRADES)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.12)
        axes.set(xlabel="test accuracy (better to the right)", ylabel="worst leak shown (better below)")

    def name_points(axes: Axes) -> None:
        label_points(axes, [_label(one, name, colours) for one, name in zip(best, point_names(best))])

    title = "Worst leak of any adversary against test accuracy, for every defence"
    return drawn("frontier", title, draw, (WIDE[0], 4.2), finish=name_points)


def _draw_place(axes: Axes, one: Place, colour: str, mark: str) -> None:
    best = not one.choice.dominated_by
    accuracy = one.choice.accuracy
    assert accuracy is not None
    if best and accuracy.low is not None and accuracy.high is not None:
        axes.plot([accuracy.low, accuracy.high], [one.shown] * 2, color=colour, linewidth=1.0, alpha=0.45)
    axes.plot([one.accuracy] * 2, [one.shown, one.possible], color=colour, linewidth=1.0, alpha=0.45)
    face = colour if best else "none"
    axes.plot(
        [one.accuracy],
        [one.shown],
        mark,
        color=colour,
        markerfacecolor=face,
        markersize=8 if best else 6,
        zorder=4,
    )


def _label(one: Place, name: str, colours: dict[str, str]) -> Label:
    return Label(one.accuracy, one.shown, name, colours.get(one.choice.defence, INK))
