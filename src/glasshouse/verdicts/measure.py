"""A finding over its seeds, judged against a blind guess, and how findings are chosen and grouped."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from glasshouse.findings import LADDER, Finding
from glasshouse.verdicts.metrics import CENTRAL, NOT_RUN, family_words, metric_words

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Judged = Literal["leak", "clear", "below", "unjudged", "unknown"]

_SERVERS = ("curious server", "blind server", "blind crafting server", "crafting server")
BY_ACCESS = ("outsider", "owner", "client", *_SERVERS)
"""The adversaries, from the least access to the most."""


@dataclass(frozen=True)
class Measure:
    """A finding over all its seeds; `values` has one for each seed, `row` is the first seed's finding."""

    row: Finding
    value: float | None
    low: float | None
    high: float | None
    chance: float | None
    n: int | None
    values: tuple[float, ...]

    @property
    def known(self) -> float:
        """The value, where it is known that there is one."""
        assert self.value is not None
        return self.value

    @property
    def judged(self) -> Judged:
        """How the interval lies to the score of a blind guess, in the direction that leaks."""
        if self.value is None:
            return "unknown"
        if self.chance is None:
            return "unjudged"
        low, high = (None if end is None else end - self.chance for end in (self.low, self.high))
        if metric_words(self.row.metric).leaks == "low":
            low, high = (None if end is None else -end for end in (high, low))
        if low is None:
            return "unjudged"
        if low > 0:
            return "leak"
        # A bound from one side, such as that on epsilon, has no other end.
        return "below" if high is not None and high < 0 else "clear"

    @property
    def advantage(self) -> tuple[float, float, float] | None:
        """Gain over a blind guess with its interval (value, low, high), positive when it leaks."""
        if self.value is None or self.chance is None:
            return None
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        gains = (self.value - self.chance, low - self.chance, high - self.chance)
        if metric_words(self.row.metric).leaks == "low":
            return -gains[0], -gains[2], -gains[1]
        return gains

    @property
    def got(self) -> tuple[float, float | None, float | None] | None:
        """What the adversary got (value, low, high), higher for more, whatever the metric's direction.

        Unlike `advantage` it does not move with the score of a blind guess, which differs between models: a
        model that is wrong more often also leaves less to fool.
        """
        if self.value is None:
            return None
        if metric_words(self.row.metric).leaks != "low":
            return self.value, self.low, self.high
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return -self.value, low, high

    @property
    def reason(self) -> str:
        """Why there is no value."""
        return self.row.reason or "no reason was recorded"


def leaks(measure: Measure) -> bool:
    """Whether a measure says what an adversary got from the federation, rather than how good the model is."""
    row = measure.row
    metric = family_words(row.family).headline if row.metric == NOT_RUN else row.metric
    return (
        bool(row.adversary) and row.family not in ("utility", LADDER) and metric_words(metric).leaks != "none"
    )


def ordered_adversaries(measures: Sequence[Measure]) -> list[str]:
    """The adversaries in the measures, from the least access to the most, unknown ones last."""
    return by_access(m.row.adversary for m in measures if m.row.adversary and leaks(m))


def by_access(adversaries: Iterable[str]) -> list[str]:
    """Each adversary once, from the least access to the most, unknown ones last."""
    present = dict.fromkeys(adversaries)
    return [n for n in BY_ACCESS if n in present] + [n for n in present if n not in BY_ACCESS]


def federated(measures: Sequence[Measure]) -> list[Measure]:
    """All but those of the central baseline, which is a yardstick and not on trial."""
    return [m for m in measures if m.row.strategy != CENTRAL]


def undefended(measures: Sequence[Measure]) -> str:
    """`none` where it was measured, else the first defence."""
    defences = [m.row.defence or "none" for m in measures]
    return "none" if "none" in defences else defences[0]


def headline(measures: Sequence[Measure]) -> str:
    """The metric that leads for an attack: its family's headline where measured, else the first.

    A detail comes last.
    """
    wanted = family_words(measures[0].row.family).headline
    present = [m.row.metric for m in measures]
    return min(present, key=lambda metric: (metric != wanted, metric_words(metric).detail))


def reach(measure: Measure) -> tuple[bool, float]:
    """How far an attack got; gains are compared within the family's headline, which goes before others.

    Of metrics that fall with success, such as robust accuracy, the number itself is compared: what random
    noise leaves, its chance, is not the same for every model and limit.
    """
    gain = float("-inf")
    if measure.advantage and measure.got:
        falls = metric_words(measure.row.metric).leaks == "low"
        gain = measure.got[0] if falls else measure.advantage[0]
    return measure.row.metric == family_words(measure.row.family).headline, gain


def varying(measures: Sequence[Measure], row: Finding) -> list[str]:
    """Those of the row's strategy, data and model that are not the same in every attack measured."""
    keys = ("strategy", "data", "model")
    attacked = [m.row for m in measures if m.row.adversary]
    return [getattr(row, k) or "" for k in keys if len({getattr(other, k) for other in attacked}) > 1]


def by_attack(measures: Sequence[Measure]) -> dict[tuple[object, ...], list[Measure]]:
    """The measures of each attack in each setting, over all metrics and defences."""
    return grouped(measures, lambda m: (m.row.family, m.row.attack, m.row.strategy, m.row.data, m.row.model))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key, in order of appearance."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
