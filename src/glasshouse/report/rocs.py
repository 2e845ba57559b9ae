"""Chooses which ROC curves stand together: few figures, whatever the number of attacks and defences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from glasshouse.exhibits import Roc
from glasshouse.report.words import ADVERSARIES, adversary_words

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
    attacks: dict[tuple[str, int, str], list[Roc]] = {}
    for roc in rocs:
        attacks.setdefault((roc.adversary, roc.unit, roc.attack), []).append(roc)
    if len(attacks) <= FEW:
        repeated = len({(unit, attack) for _, unit, attack in attacks}) < len(attacks)
        return [
            RocPanel(_title(who if repeated else "", attack, unit), "defence", tuple(curves))
            for (who, unit, attack), curves in attacks.items()
        ]
    compared, defended = [], []
    for unit, adversary in _contests(rocs):
        mine = {key[2]: curves for key, curves in attacks.items() if key[:2] == (adversary, unit)}
        bare = sorted((_undefended(curves) for curves in mine.values()), key=area, reverse=True)
        if len(bare) > 1:
            compared.append(RocPanel(_title(adversary, "all attacks", unit), "attack", tuple(bare)))
        strongest = tuple(mine[bare[0].attack])
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


def _undefended(curves: Sequence[Roc]) -> Roc:
    return next((roc for roc in curves if roc.defence == "none"), curves[0])


def _contests(rocs: Sequence[Roc]) -> list[tuple[int, str]]:
    """Each number of records judged at once with each adversary, single records and little access first."""
    present = dict.fromkeys((roc.unit, roc.adversary) for roc in rocs)
    return sorted(present, key=lambda contest: (contest[0], _access(contest[1])))


def _access(adversary: str) -> int:
    known = list(ADVERSARIES)
    return known.index(adversary) if adversary in known else len(known)


def _title(adversary: str, what: str, unit: int) -> str:
    return of_batches(f"{adversary_words(adversary).label}: {what}" if adversary else what, unit)
