"""Chooses which ROC curves stand together: few figures, whatever the number of attacks and defences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from glasshouse.report.run import Roc
from glasshouse.report.words import ADVERSARIES, adversary_words

FEW = 3  # attacks that each have a figure of their own
FIGURES = 6


@dataclass(frozen=True)
class RocPanel:
    """Curves for one figure: `by` says what its lines differ in."""

    title: str
    by: Literal["defence", "attack"]
    curves: tuple[Roc, ...]


def roc_panels(rocs: Sequence[Roc]) -> list[RocPanel]:
    """A figure for each attack while they are few; else each adversary's attacks compared on one.

    After the comparisons comes each adversary's strongest attack under the defences.
    """
    attacks: dict[tuple[str, str], list[Roc]] = {}
    for roc in rocs:
        attacks.setdefault((roc.adversary, roc.attack), []).append(roc)
    if len(attacks) <= FEW:
        repeated = len({attack for _, attack in attacks}) < len(attacks)
        return [
            RocPanel(_title(*key) if repeated else key[1], "defence", tuple(curves))
            for key, curves in attacks.items()
        ]
    compared, defended = [], []
    for adversary in sorted(dict.fromkeys(adversary for adversary, _ in attacks), key=_access):
        mine = {attack: curves for (who, attack), curves in attacks.items() if who == adversary}
        bare = sorted((_undefended(curves) for curves in mine.values()), key=area, reverse=True)
        if len(bare) > 1:
            compared.append(RocPanel(_title(adversary, "all attacks"), "attack", tuple(bare)))
        strongest = tuple(mine[bare[0].attack])
        if len(strongest) > 1 or len(bare) == 1:
            defended.append(RocPanel(_title(adversary, bare[0].attack), "defence", strongest))
    return (compared + defended)[:FIGURES]


def area(roc: Roc) -> float:
    """The area under a curve, by the trapezoidal rule."""
    points = [(0.0, 0.0), *zip(roc.fpr, roc.tpr), (1.0, 1.0)]
    return sum((right[0] - left[0]) * (left[1] + right[1]) / 2 for left, right in pairwise(points))


def _undefended(curves: Sequence[Roc]) -> Roc:
    return next((roc for roc in curves if roc.defence == "none"), curves[0])


def _access(adversary: str) -> int:
    known = list(ADVERSARIES)
    return known.index(adversary) if adversary in known else len(known)


def _title(adversary: str, what: str) -> str:
    return f"{adversary_words(adversary).label}: {what}" if adversary else what
