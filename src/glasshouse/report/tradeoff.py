"""What a defence buys and what it costs: each attack's leak beside the accuracy left."""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.report.measure import Measure, by_attack, headline, leaks, ordered_adversaries, varying
from glasshouse.report.words import adversary_words, defence_words
from glasshouse.spelling import number
from glasshouse.verdicts.metrics import family_words, metric_words

FEW = 3  # attacks of one kind by one adversary that are each drawn


@dataclass(frozen=True)
class Point:
    """A defence in the plane of accuracy and leak."""

    defence: str
    accuracy: Measure | None
    leak: Measure


@dataclass(frozen=True)
class Tradeoff:
    """One attack under every defence, undefended first where it was measured."""

    family: str
    adversary: str
    attack: str
    context: str
    points: tuple[Point, ...]

    @property
    def title(self) -> str:
        """The panel's name."""
        where = f", {self.context}" if self.context else ""
        return f"{adversary_words(self.adversary).label}: {self.attack}{where}"


def tradeoffs(measures: Sequence[Measure]) -> list[Tradeoff]:
    """Every attack's leading metric under each defence, beside the accuracy that defence leaves."""
    accuracy = {
        _place(m): m for m in measures if m.row.family == "utility" and m.row.metric == "test-accuracy"
    }
    made = []
    for name in ordered_adversaries(measures):
        mine = [m for m in measures if m.row.adversary == name and leaks(m)]
        for lines in by_attack(mine).values():
            lead = _weighed(lines)
            points = [
                Point(m.row.defence or "none", accuracy.get(_place(m)), m)
                for m in lines
                if m.row.metric == lead
            ]
            points.sort(key=lambda point: point.defence != "none")
            row = points[0].leak.row
            context = ", ".join(str(part) for part in varying(measures, row))
            made.append(Tradeoff(row.family, name, row.attack or "", context, tuple(points)))
    return made


def drawn_tradeoffs(made: Sequence[Tradeoff]) -> list[tuple[Tradeoff, list[Tradeoff]]]:
    """The tradeoffs to draw, each with those it stands for.

    An attack tried under no defence has nothing to weigh, so it is drawn only where no attack was. Where an
    adversary has more than `FEW` attacks of a family, the one that gets furthest stands for all.
    """
    groups: dict[tuple[str, str, str], list[Tradeoff]] = {}
    compared = [tradeoff for tradeoff in made if len(tradeoff.points) > 1]
    for tradeoff in compared or made:
        groups.setdefault((tradeoff.adversary, tradeoff.family, tradeoff.context), []).append(tradeoff)
    chosen: list[tuple[Tradeoff, list[Tradeoff]]] = []
    for group in groups.values():
        if len(group) <= FEW:
            chosen += [(tradeoff, []) for tradeoff in group]
            continue
        best = max(group, key=_drawing_rank)
        chosen.append((best, [tradeoff for tradeoff in group if tradeoff is not best]))
    return chosen


def worth(tradeoff: Tradeoff) -> str:
    """Which defence lowers this leak, and at what cost of accuracy; empty when nothing was compared."""
    base = tradeoff.points[0]
    tried = [point for point in tradeoff.points[1:] if point.leak.judged not in ("unjudged", "unknown")]
    if base.defence != "none" or base.leak.judged == "unknown" or not tried:
        return ""
    if base.leak.judged == "unjudged":
        return "Without an interval for the undefended model, what a defence lowers cannot be judged."
    if base.leak.judged in ("clear", "below"):
        return "This attack finds nothing without a defence, so there is nothing here for a defence to lower."
    to_chance = [point for point in tried if point.leak.judged in ("clear", "below")]
    if to_chance:
        best = min(to_chance, key=lambda point: (_cost(base, point), point.leak.advantage or ()))
        return f"Cheapest defence that brings the interval down to chance: {_bought(base, best)}."
    lower = [point for point in tried if _apart(base, point)]
    if lower:
        best = min(lower, key=lambda point: point.leak.advantage or ())
        return f"No defence tried stops it; the one that lowers it most: {_bought(base, best)}."
    return "No defence tried lowers it by more than the intervals allow for."


def _weighed(measures: Sequence[Measure]) -> str:
    """The headline of an attack, or, where it shows nothing undefended, the first metric that does.

    A detail does not count.
    """
    lead = headline(measures)
    bare = [m for m in measures if (m.row.defence or "none") == "none" and m.judged == "leak"]
    found = [m.row.metric for m in bare if not metric_words(m.row.metric).detail]
    return lead if lead in found or not found else found[0]


def _drawing_rank(tradeoff: Tradeoff) -> tuple[bool, float]:
    """First the family's headline, then the gain."""
    leak = tradeoff.points[0].leak
    gain = leak.advantage[0] if leak.advantage else float("-inf")
    return leak.row.metric == family_words(tradeoff.family).headline, gain


def _place(measure: Measure) -> tuple[object, ...]:
    row = measure.row
    return row.defence or "none", row.strategy, row.data, row.model


def _cost(base: Point, point: Point) -> float:
    if not base.accuracy or not point.accuracy:
        return float("inf")
    if base.accuracy.value is None or point.accuracy.value is None:
        return float("inf")
    return base.accuracy.value - point.accuracy.value


def _apart(base: Point, point: Point) -> bool:
    """Whether the leak's interval lies wholly below the undefended one: stricter than need be."""
    before, after = base.leak.advantage, point.leak.advantage
    return before is not None and after is not None and after[2] < before[1]


def _bought(base: Point, point: Point) -> str:
    words = metric_words(point.leak.row.metric)
    text = (
        f"{defence_words(point.defence)} ({words.label} {number(base.leak.value, words.unit)} → "
        f"{number(point.leak.value, words.unit)})"
    )
    cost = _cost(base, point)
    if cost == float("inf"):
        price = "its test accuracy was not measured"
    elif cost <= 0:
        price = "at no cost of test accuracy"
    else:
        price = f"for {cost * 100:.1f} points of test accuracy"
    luck = "" if _apart(base, point) else ". The two intervals overlap, so the change may be luck"
    return f"{text}, {price}{luck}"
