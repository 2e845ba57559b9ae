"""What a defence buys and what it costs: each attack's leak beside the accuracy left."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glasshouse.verdicts.informed import knows_defence, uninformed, worse_of_two
from glasshouse.verdicts.measure import Measure, by_attack, headline, leaks, ordered_adversaries, varying
from glasshouse.verdicts.metrics import metric_words

Effect = Literal[
    "nothing compared",
    "not judged",
    "nothing to lower",
    "stops",
    "lowers",
    "no effect shown",
    "makes it worse",
]
_SAME = 1e-9


@dataclass(frozen=True)
class Point:
    """A defence in the plane of accuracy and leak."""

    defence: str
    accuracy: Measure | None
    leak: Measure


@dataclass(frozen=True)
class Tradeoff:
    """One attack under every defence, undefended first where it was measured.

    Where it also ran knowing the defence, a point is that of the form that got further.
    """

    family: str
    adversary: str
    attack: str
    context: str
    points: tuple[Point, ...]

    @property
    def worse_if_known(self) -> list[str]:
        """The defences under which the attack got further by knowing them."""
        return [point.defence for point in self.points if knows_defence(point.leak)]


@dataclass(frozen=True)
class Worth:
    """What the defences do to one attack, and the `best` of those that stop or lower it.

    A defence lowers an attack where the interval of what it gets lies below the undefended one; the lowest is
    best. It stops one where that interval comes down to chance and the number is lower, too; of those the
    cheapest is best. A chance that is another one than undefended proves nothing: there it must be lowered.
    Where every defence lies wholly above the undefended one, they make it worse.
    """

    effect: Effect
    base: Point
    best: Point | None = None

    @property
    def cost(self) -> float:
        """The test accuracy that the best defence takes; infinite where it was not measured."""
        assert self.best is not None
        return _cost(self.base, self.best)

    @property
    def may_be_luck(self) -> bool:
        """Whether the leak's interval overlaps the undefended one."""
        assert self.best is not None
        return not _apart(self.base.leak, self.best.leak)


def tradeoffs(measures: Sequence[Measure]) -> list[Tradeoff]:
    """Every attack's leading metric under each defence, beside the accuracy that defence leaves."""
    accuracy = {
        _setting(m): m for m in measures if m.row.family == "utility" and m.row.metric == "test-accuracy"
    }
    weighed = []
    for name in ordered_adversaries(measures):
        attacked = [m for m in measures if m.row.adversary == name and leaks(m)]
        for lines in _by_uninformed(attacked):
            lead = _weighed(lines)
            points = [
                Point(m.row.defence or "none", accuracy.get(_setting(m)), m)
                for m in worse_of_two([m for m in lines if m.row.metric == lead])
            ]
            points.sort(key=lambda point: point.defence != "none")
            row = points[0].leak.row
            context = ", ".join(varying(measures, row))
            weighed.append(Tradeoff(row.family, name, uninformed(row.attack), context, tuple(points)))
    return weighed


def worth(tradeoff: Tradeoff) -> Worth:
    """Which defence stops or lowers this leak, at the least cost of accuracy."""
    base = tradeoff.points[0]
    tried = [point for point in tradeoff.points[1:] if point.leak.judged not in ("unjudged", "unknown")]
    if base.defence != "none" or base.leak.judged == "unknown" or not tried:
        return Worth("nothing compared", base)
    if base.leak.judged == "unjudged":
        return Worth("not judged", base)
    if base.leak.judged in ("clear", "below"):
        return Worth("nothing to lower", base)
    stopping = [point for point in tried if _stops(base.leak, point.leak)]
    if stopping:
        return Worth("stops", base, min(stopping, key=lambda point: (_cost(base, point), _got(point.leak))))
    lowering = [point for point in tried if _apart(base.leak, point.leak)]
    if lowering:
        return Worth("lowers", base, min(lowering, key=lambda point: _got(point.leak)))
    worse = all(_apart(point.leak, base.leak) for point in tried)
    return Worth("makes it worse" if worse else "no effect shown", base)


def _by_uninformed(measures: Sequence[Measure]) -> list[list[Measure]]:
    """The measures of each attack in each setting, with those of its form that knows the defence."""
    groups: dict[tuple[object, ...], list[Measure]] = {}
    for (family, attack, *setting), lines in by_attack(measures).items():
        groups.setdefault((family, uninformed(str(attack or "")), *setting), []).extend(lines)
    return list(groups.values())


def _weighed(measures: Sequence[Measure]) -> str:
    """The headline of an attack, or, where it shows nothing undefended, the first metric that does.

    A detail does not count.
    """
    lead = headline(measures)
    bare = [m for m in measures if (m.row.defence or "none") == "none" and m.judged == "leak"]
    leaking = [m.row.metric for m in bare if not metric_words(m.row.metric).detail]
    return lead if lead in leaking or not leaking else leaking[0]


def _setting(measure: Measure) -> tuple[object, ...]:
    row = measure.row
    return row.defence or "none", row.strategy, row.data, row.model


def _cost(base: Point, point: Point) -> float:
    if not base.accuracy or not point.accuracy:
        return math.inf
    if base.accuracy.value is None or point.accuracy.value is None:
        return math.inf
    return base.accuracy.value - point.accuracy.value


def _stops(before: Measure, after: Measure) -> bool:
    """Whether a leak comes down to chance, and the adversary gets less than before."""
    if after.judged not in ("clear", "below") or _got(after) >= _got(before):
        return False
    assert before.chance is not None
    assert after.chance is not None
    return abs(after.chance - before.chance) <= _SAME or _apart(before, after)


def _got(measure: Measure) -> float:
    return measure.got[0] if measure.got else math.inf


def _apart(before: Measure, after: Measure) -> bool:
    """Whether what is got lies, interval by interval, wholly below what was: stricter than need be.

    The numbers themselves are compared, in the metric's own direction. A missing end shows nothing: a bound
    from below that falls is no sign that there is less.
    """
    if before.got is None or after.got is None:
        return False
    (_, low, _), (_, _, high) = before.got, after.got
    return low is not None and high is not None and high < low
