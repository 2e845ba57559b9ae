"""A finding over its seeds, judged against a blind guess and put into words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from glasshouse.findings import Finding
from glasshouse.report.words import ADVERSARIES, adversary_words, sentence_words
from glasshouse.spelling import interval, number, of_hundred
from glasshouse.verdicts.metrics import CENTRAL, NOT_RUN, family_words, metric_words

Kind = Literal["leak", "clear", "below", "unjudged", "unknown"]


@dataclass(frozen=True)
class Measure:
    """A finding over all its seeds: mean value, and the envelope of the seeds' intervals."""

    row: Finding
    value: float | None
    low: float | None
    high: float | None
    chance: float | None
    n: int | None
    values: tuple[float, ...]

    @property
    def judged(self) -> Kind:
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
    def verdict(self) -> str:
        """The verdict in words; never more than this attack's interval supports."""
        family = family_words(self.row.family)
        return {
            "leak": family.found,
            "clear": f"{family.not_found} (interval includes chance)",
            "below": f"{family.not_found} (interval on the wrong side of chance)",
            "unjudged": "not judged (no interval or no chance level)",
            "unknown": "not estimable",
        }[self.judged]

    @property
    def short_verdict(self) -> str:
        """The verdict without its reason."""
        return self.verdict.partition(" (")[0]

    @property
    def caution(self) -> str:
        """What the verdict alone would hide; usually nothing."""
        if self.judged == "below" and family_words(self.row.family).turns_round:
            return (
                "The attack did worse than a blind guess. That is no comfort: turned round, "
                "the same rule could do better than one."
            )
        return ""

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
    def reason(self) -> str:
        """Why there is no value: the last that `assumes` says, after what the attack was given."""
        if not self.row.assumes:
            return "no reason was recorded"
        return self.row.assumes[-1].removeprefix("not estimable: ")

    @property
    def compact(self) -> str:
        """The value with its interval, or that there is none."""
        words = metric_words(self.row.metric)
        if self.value is None:
            return words.label if self.row.metric == NOT_RUN else f"{words.label}: not estimable"
        text = f"{words.label} {number(self.value, words.unit)}"
        if self.low is None and self.high is None:
            return text
        return f"{text} ({interval(self.low, self.high, words.unit)})"

    @property
    def expert(self) -> str:
        """The numbers in one line: value, interval, chance, n."""
        words = metric_words(self.row.metric)
        if self.value is None:
            return f"{words.label}: not estimable ({self.reason})"
        parts = [f"{words.label} {number(self.value, words.unit)}"]
        if self.low is not None or self.high is not None:
            parts.append(f"95% interval {interval(self.low, self.high, words.unit)}")
        if self.chance is not None:
            parts.append(f"chance {number(self.chance, words.unit)}")
        if self.n is not None:
            parts.append(f"n = {self.n:,}".replace(",", "\u202f"))
        if len(self.values) > 1:
            parts.append(f"{len(self.values)} seeds")
        return ", ".join(parts)

    @property
    def sentence(self) -> str:
        """What the adversary achieved, for someone who does not know the metric."""
        who = adversary_words(self.row.adversary or "adversary").subject
        words = metric_words(self.row.metric)
        if self.value is None:
            return f"What this adversary learns could not be estimated: {self.reason}."
        shown = of_hundred if words.span == (0.0, 1.0) else (lambda v: number(v, words.unit))
        says = sentence_words(self.row.metric, self.row.family)
        says = says.format(value=shown(self.value), raw=number(self.value, words.unit))
        if self.chance is None:
            return f"{who} {says}."
        return f"{who} {says}; {words.blind.format(chance=_short(shown(self.chance)))}."


def pooled(rows: Iterable[Finding]) -> list[Measure]:
    """One measure for every finding, over its seeds, in order of appearance."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for row in rows:
        key = (row.source, row.cell, row.family, row.adversary, row.attack, row.defence or "none")
        groups.setdefault((*key, row.strategy, row.data, row.model, row.metric), []).append(row)
    return [_over_seeds(group) for group in groups.values()]


def leaks(measure: Measure) -> bool:
    """Whether a measure says what an adversary got, rather than how good the model is."""
    row = measure.row
    return bool(row.adversary) and row.family != "utility" and metric_words(row.metric).leaks != "none"


def ordered_adversaries(measures: Sequence[Measure]) -> list[str]:
    """The adversaries in the measures, known ones from the least access to the most."""
    present = dict.fromkeys(m.row.adversary for m in measures if m.row.adversary and leaks(m))
    return [n for n in ADVERSARIES if n in present] + [n for n in present if n not in ADVERSARIES]


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


def varying(measures: Sequence[Measure], row: Finding) -> list[str]:
    """Those of the row's strategy, data and model that are not the same in every attack measured."""
    keys = ("strategy", "data", "model")
    attacked = [m.row for m in measures if m.row.adversary]
    return [getattr(row, k) or "" for k in keys if len({getattr(other, k) for other in attacked}) > 1]


def by_attack(measures: Sequence[Measure]) -> dict[tuple[object, ...], list[Measure]]:
    """The measures of each attack in each setting, over all metrics and defences."""
    groups: dict[tuple[object, ...], list[Measure]] = {}
    for m in measures:
        key = (m.row.family, m.row.attack, m.row.strategy, m.row.data, m.row.model)
        groups.setdefault(key, []).append(m)
    return groups


def _over_seeds(rows: Sequence[Finding]) -> Measure:
    values = tuple(row.value for row in rows if row.value is not None)
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    chances = [row.chance for row in rows if row.chance is not None]
    counts = [row.n for row in rows if row.n is not None]
    # One seed without an interval leaves the whole without: its row says why.
    bare = [row for row in rows if row.value is not None and row.low is None and row.high is None]
    return Measure(
        row=(bare or rows)[0],
        value=sum(values) / len(values) if values else None,
        low=min(lows) if values and len(lows) == len(values) else None,
        high=max(highs) if values and len(highs) == len(values) else None,
        chance=sum(chances) / len(chances) if chances else None,
        n=sum(counts) if counts else None,
        values=values,
    )


def _short(count: str) -> str:
    return count.removesuffix(" of 100")
