"""Privacy against accuracy: what the strongest attack of each adversary gets under every defence."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from glasshouse.verdicts.informed import uninformed
from glasshouse.verdicts.measure import Measure, federated, grouped, ordered_adversaries
from glasshouse.verdicts.outcome import about_data, degree, strongest

Attack = tuple[str | None, str]
"""An adversary and an attack of its, in the form that does not know the defence."""


@dataclass(frozen=True)
class Choice:
    """A defence: the accuracy it leaves, and the strongest attack of each adversary on the training data.

    Each is the worse of the attacks that know the defence and those that do not; where all of an adversary's
    could not be tried, it is one of those. `measures` has all that was measured under this defence. `partial`
    says that attacks which met the undefended model were not run; `dominated_by` names a better defence.
    """

    defence: str
    accuracy: Measure | None
    leaks: Mapping[str, Measure]
    dominated_by: str | None = None
    partial: bool = False
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class Frontier:
    """Every defence that was tried, the undefended model first.

    One dominates another where it is shown to be better in something, the accuracy or what an adversary gets,
    and is shown to be worse in nothing: intervals that overlap show neither. Only attacks that met both
    count. What dominates is itself dominated by none, so that luck cannot strike out a whole circle.
    """

    choices: tuple[Choice, ...]

    @property
    def base(self) -> Choice | None:
        """The undefended model, where it was measured."""
        return next((choice for choice in self.choices if choice.defence == "none"), None)

    @property
    def undominated(self) -> list[Choice]:
        """Those that no other dominates, the most accurate first."""
        best = [choice for choice in self.choices if choice.dominated_by is None]
        return sorted(best, key=lambda choice: -accuracy_of(choice))


def frontier(measures: Sequence[Measure]) -> Frontier:
    """Every defence in the measures, judged by the strongest attack of each adversary."""
    trained = federated(measures)
    adversaries = ordered_adversaries(trained)
    by_defence = grouped(trained, lambda m: m.row.defence or "none")
    choices = [_choice(defence, mine, adversaries) for defence, mine in by_defence.items()]
    choices.sort(key=lambda choice: choice.defence != "none")
    asked = _attacks(choices[0].measures) if choices and choices[0].defence == "none" else frozenset()
    choices = [replace(choice, partial=bool(asked - _attacks(choice.measures))) for choice in choices]
    better = {b.defence: [a for a in choices if a is not b and dominates(a, b)] for b in choices}
    return Frontier(tuple(replace(b, dominated_by=_dominator(b, better)) for b in choices))


def accuracy_of(choice: Choice) -> float:
    """The test accuracy; minus infinity where it was not measured."""
    known = choice.accuracy is not None and choice.accuracy.value is not None
    return choice.accuracy.known if choice.accuracy is not None and known else -math.inf


def cost(base: Choice | None, choice: Choice) -> tuple[float, float | None, float | None] | None:
    """The accuracy that a defence takes, with an interval from those of the two accuracies.

    The ends of two intervals are joined as if other images had been asked each time (Newcombe); they were the
    same ones, so it errs on the wide side.
    """
    before, after = base.accuracy if base else None, choice.accuracy
    if before is None or after is None or before.value is None or after.value is None:
        return None
    lost = before.value - after.value
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return lost, None, None
    least = math.hypot(before.value - before.low, after.high - after.value)
    most = math.hypot(before.high - before.value, after.value - after.low)
    return lost, lost - least, lost + most


def dominates(a: Choice, b: Choice) -> bool:
    """Whether `a` is shown to be better in something and to be worse in nothing."""
    both = _attacks(a.measures) & _attacks(b.measures)
    mine, others = (_strongest([m for m in one.measures if _attack(m) in both]) for one in (a, b))
    compared = [_compared(mine[name], others[name]) for name in mine if name in others]
    compared.append(_more_accurate(a.accuracy, b.accuracy))
    return 1 in compared and -1 not in compared


def _choice(defence: str, measures: Sequence[Measure], adversaries: Iterable[str]) -> Choice:
    accuracy = next((m for m in measures if m.row.metric == "test-accuracy"), None)
    found = _strongest(measures)
    leaks = {name: found[name] for name in adversaries if name in found}
    return Choice(defence, accuracy, leaks, measures=tuple(measures))


def _strongest(measures: Sequence[Measure]) -> dict[str, Measure]:
    mine = grouped([m for m in measures if about_data(m)], lambda m: m.row.adversary or "")
    return {name: best for name, group in mine.items() if (best := strongest(group)) is not None}


def _attacks(measures: Sequence[Measure]) -> frozenset[Attack]:
    return frozenset(_attack(m) for m in measures if about_data(m))


def _attack(measure: Measure) -> Attack:
    return measure.row.adversary, uninformed(measure.row.attack)


def _dominator(choice: Choice, better: Mapping[str, Sequence[Choice]]) -> str | None:
    """The most accurate of those that dominate and are not dominated themselves."""
    best = [rival for rival in better[choice.defence] if not better[rival.defence]]
    return max(best, key=accuracy_of).defence if best else None


def _compared(mine: Measure, other: Measure) -> int:
    """1 where less is got for sure from `mine` than from the other, -1 where more is, else 0."""
    if degree(mine, "possible") is None or degree(other, "possible") is None:
        return 0
    if (degree(mine, "possible") or 0.0) < (degree(other) or 0.0):
        return 1
    return -1 if (degree(other, "possible") or 0.0) < (degree(mine) or 0.0) else 0


def _more_accurate(mine: Measure | None, other: Measure | None) -> int:
    if mine is None or other is None:
        return 0
    if mine.low is not None and other.high is not None and mine.low > other.high:
        return 1
    return -1 if mine.high is not None and other.low is not None and mine.high < other.low else 0
