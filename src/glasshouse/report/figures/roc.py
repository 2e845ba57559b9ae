"""Draws ROC curves, and chooses which stand together: few figures, however many attacks and defences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from glasshouse.exhibits import Roc
from glasshouse.report.figures.drawing import (
    DASHED,
    INK,
    PALETTE,
    TALL,
    Drawing,
    defence_lines,
    drawn,
    legend_below,
)
from glasshouse.report.words.names import adversary_words, defence_words
from glasshouse.spelling import slug
from glasshouse.verdicts.measure import by_access, grouped

FEW = 3  # attacks that each have a figure of their own
FIGURES = 8


@dataclass(frozen=True)
class RocPanel:
    """Curves for one figure: `by` says what its lines differ in."""

    title: str
    by: Literal["defence", "attack"]
    curves: tuple[Roc, ...]


def roc_panels(rocs: Sequence[Roc]) -> list[RocPanel]:
    """A figure for each attack while they are few; else each adversary's attacks compared on one.

    Only attacks that judge as many records at once are compared. After the comparisons comes each adversary's
    strongest attack under the defences.
    """
    attacks = grouped(rocs, lambda roc: (roc.adversary, roc.unit, roc.attack))
    if len(attacks) <= FEW:
        repeated = len({(unit, attack) for _, unit, attack in attacks}) < len(attacks)
        return [
            RocPanel(_title(who if repeated else "", attack, unit), "defence", tuple(curves))
            for (who, unit, attack), curves in attacks.items()
        ]
    compared, defended = [], []
    for unit, adversary in _contests(rocs):
        tried = {key[2]: curves for key, curves in attacks.items() if key[:2] == (adversary, unit)}
        bare = sorted(
            (min(curves, key=lambda roc: roc.defence != "none") for curves in tried.values()),
            key=area,
            reverse=True,
        )
        if len(bare) > 1:
            compared.append(RocPanel(_title(adversary, "all attacks", unit), "attack", tuple(bare)))
        strongest = tuple(tried[bare[0].attack])
        if len(strongest) > 1 or len(bare) == 1:
            defended.append(RocPanel(_title(adversary, bare[0].attack, unit), "defence", strongest))
    return (compared + defended)[:FIGURES]


def of_batches(title: str, unit: int) -> str:
    """The title of a figure, which says so where the attack judges `unit` records at once."""
    return title if unit == 1 else f"{title}, batches of {unit}"


def area(roc: Roc) -> float:
    """The area under a curve, by the trapezoidal rule."""
    points = [(0.0, 0.0), *zip(roc.fpr, roc.tpr), (1.0, 1.0)]
    return sum((right[0] - left[0]) * (left[1] + right[1]) / 2 for left, right in pairwise(points))


def roc_figure(panel: RocPanel, colours: dict[str, str]) -> Drawing | None:
    """ROC curves on log-log axes, a line for each defence or attack, with the chance diagonal.

    An attack that tells nobody apart has no curve; None where no attack has one.
    """
    curves = [roc for roc in panel.curves if not indifferent(roc)]
    if not curves:
        return None
    floor = min(0.5 / max(1, roc.nonmembers) for roc in curves)
    floor = min(floor, 0.5 / max(1, min(roc.members for roc in curves)), 0.05)

    lines = defence_lines(colours)

    def draw(axes: Axes) -> None:
        axes.plot([floor, 1], [floor, 1], color=INK, linewidth=0.9, linestyle=DASHED, label="blind guess")
        for rank, roc in enumerate(curves):
            bare = roc.defence == "none" if panel.by == "defence" else rank == 0
            look: Any = {"color": colours.get(roc.defence, INK), "label": defence_words(roc.defence)}
            dashes = lines.get(roc.defence, "-") if panel.by == "defence" else "-"
            if panel.by == "attack":
                look = {"color": PALETTE[rank % len(PALETTE)], "label": f"{roc.attack}, AUC {area(roc):.3f}"}
            look["zorder"] = 3 if bare else 2
            if decides(roc):
                # Zero has no place on a logarithmic axis; unclipped it would drag the layout along.
                accused, detected = ([max(rate, floor)] for rate in _inner(roc).pop())
                axes.plot(accused, detected, "o", markersize=8 if bare else 6, clip_on=False, **look)
            else:
                accused, detected = ([max(rate, floor) for rate in rates] for rates in (roc.fpr, roc.tpr))
                axes.step(
                    accused, detected, where="post", linestyle=dashes, linewidth=2.2 if bare else 1.2, **look
                )
        for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            scale("log")
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.set(xlim=(floor, 1), ylim=(floor, 1.15))
        axes.set(xlabel="non-members wrongly accused (FPR)", ylabel="members found (TPR)")
        legend_below(axes)

    tall = max(TALL[1], 3.9 + 0.2 * len(curves))  # the legend may need a line for each
    return drawn(slug("roc", panel.title), f"ROC of {panel.title}, log-log", draw, (TALL[0], tall))


def decides(roc: Roc) -> bool:
    """Whether the attack only says yes or no, so that its curve is a point and no line."""
    return len(_inner(roc)) == 1


def indifferent(roc: Roc) -> bool:
    """Whether the attack gives everybody the same score, so that there is no curve to draw."""
    return not _inner(roc)


def _contests(rocs: Sequence[Roc]) -> list[tuple[int, str]]:
    """Each number of records judged at once with each adversary, single records and little access first."""
    order = by_access(roc.adversary for roc in rocs)
    present = dict.fromkeys((roc.unit, roc.adversary) for roc in rocs)
    return sorted(present, key=lambda contest: (contest[0], order.index(contest[1])))


def _title(adversary: str, what: str, unit: int) -> str:
    return of_batches(f"{adversary_words(adversary).label}: {what}" if adversary else what, unit)


def _inner(roc: Roc) -> set[tuple[float, float]]:
    """The points of a curve but for its ends, where nobody or everybody is accused."""
    return set(zip(roc.fpr, roc.tpr)) - {(0.0, 0.0), (1.0, 1.0)}
