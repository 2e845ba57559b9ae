"""What the rows say: each adversary's answer, the verdict from its interval, what a defence buys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from glasshouse.report.run import Row
from glasshouse.report.words import (
    ADVERSARIES,
    Adversary,
    adversary_words,
    defence_words,
    family_words,
    interval,
    metric_words,
    number,
    of_hundred,
)

Kind = Literal["leak", "clear", "below", "unjudged", "unknown"]


@dataclass(frozen=True)
class Measure:
    """A finding over all its seeds: mean value, and the envelope of the seeds' intervals."""

    row: Row
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
        if self.low is None or self.high is None or self.chance is None:
            return "unjudged"
        low, high = self.low - self.chance, self.high - self.chance
        if metric_words(self.row.metric).leaks == "low":
            low, high = -high, -low
        return "leak" if low > 0 else "below" if high < 0 else "clear"

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
        if self.judged == "below":
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
    def expert(self) -> str:
        """The numbers in one line: value, interval, chance, n."""
        words = metric_words(self.row.metric)
        if self.value is None:
            return f"{words.label}: not estimable ({'; '.join(self.row.assumes) or 'no reason given'})"
        parts = [f"{words.label} {number(self.value, words.unit)}"]
        if self.low is not None and self.high is not None:
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
            reason = "; ".join(self.row.assumes) or "no reason was recorded"
            return f"What this adversary learns could not be estimated: {reason}."
        shown = of_hundred if words.span == (0.0, 1.0) else (lambda v: number(v, words.unit))
        says = words.says.format(value=shown(self.value), raw=number(self.value, words.unit))
        if self.chance is None:
            return f"{who} {says}."
        return f"{who} {says}; {words.blind.format(chance=_short(shown(self.chance)))}."


@dataclass(frozen=True)
class Line:
    """One attack in a card: its leading metric and the others."""

    name: str
    lead: Measure
    others: tuple[Measure, ...]


@dataclass(frozen=True)
class Answer:
    """What an adversary achieved in one family, led by the attack that got furthest."""

    family: str
    lead: Measure
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Card:
    """An adversary, who it is, and its answers; `defence` is what was in force."""

    name: str
    words: Adversary
    defence: str
    answers: tuple[Answer, ...]


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


def pooled(rows: Iterable[Row]) -> list[Measure]:
    """One measure for every finding, over its seeds, in order of appearance."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = (row.source, row.cell, row.family, row.adversary, row.attack, row.defence or "none")
        groups.setdefault((*key, row.strategy, row.data, row.model, row.metric), []).append(row)
    return [_over_seeds(group) for group in groups.values()]


def cards(measures: Sequence[Measure]) -> list[Card]:
    """A card for each adversary that was tried, from the least access to the most."""
    made = []
    for name in ordered_adversaries(measures):
        mine = [m for m in measures if m.row.adversary == name and leaks(m)]
        defence = undefended(mine)
        mine = [m for m in mine if (m.row.defence or "none") == defence]
        families = dict.fromkeys(m.row.family for m in mine)
        answers = tuple(_answer(family, [m for m in mine if m.row.family == family]) for family in families)
        made.append(Card(name, adversary_words(name), defence, answers))
    return made


def tradeoffs(measures: Sequence[Measure]) -> list[Tradeoff]:
    """Every attack's headline under each defence, beside the accuracy that defence leaves."""
    accuracy = {
        _place(m): m for m in measures if m.row.family == "utility" and m.row.metric == "test-accuracy"
    }
    made = []
    for name in ordered_adversaries(measures):
        mine = [m for m in measures if m.row.adversary == name and leaks(m)]
        for lines in _by_attack(mine).values():
            lead = headline(lines)
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


def worth(tradeoff: Tradeoff) -> str:
    """Which defence lowers this leak, and at what cost of accuracy; empty when nothing was compared."""
    base = tradeoff.points[0]
    tried = [point for point in tradeoff.points[1:] if point.leak.advantage]
    if base.defence != "none" or not base.leak.advantage or not tried:
        return ""
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


def leaks(measure: Measure) -> bool:
    """Whether a measure says what an adversary got, rather than how good the model is."""
    row = measure.row
    return bool(row.adversary) and row.family != "utility" and metric_words(row.metric).leaks != "none"


def ordered_adversaries(measures: Sequence[Measure]) -> list[str]:
    """The adversaries in the measures, known ones from the least access to the most."""
    present = dict.fromkeys(m.row.adversary for m in measures if m.row.adversary and leaks(m))
    return [n for n in ADVERSARIES if n in present] + [n for n in present if n not in ADVERSARIES]


def undefended(measures: Sequence[Measure]) -> str:
    """`none` where it was measured, else the first defence."""
    defences = [m.row.defence or "none" for m in measures]
    return "none" if "none" in defences else defences[0]


def headline(measures: Sequence[Measure]) -> str:
    """The metric that leads for an attack: its family's headline where measured, else the first."""
    wanted = family_words(measures[0].row.family).headline
    present = [m.row.metric for m in measures]
    return wanted if wanted in present else present[0]


def varying(measures: Sequence[Measure], row: Row) -> list[str]:
    """Those of the row's strategy, data and model that are not the same in every attack measured."""
    keys = ("strategy", "data", "model")
    attacked = [m.row for m in measures if m.row.adversary]
    return [getattr(row, k) or "" for k in keys if len({getattr(other, k) for other in attacked}) > 1]


def overall(made: Sequence[Card]) -> str:
    """The whole answer in a sentence."""
    if not made:
        return "No attack was run, so this page says how good the model is and not what it gives away."
    won = [card for card in made if any(answer.lead.judged == "leak" for answer in card.answers)]
    who = f"Of {_counted(len(made))} kinds of adversary" if len(made) > 1 else "Of the one adversary tried"
    if not won:
        return f"{who}, none did better than a blind guess; that is no proof that nothing leaks."
    names = _listed([f"the {card.words.label.lower()}" for card in won])
    if len(won) == len(made):
        return f"{who}, {'all' if len(made) > 1 else 'it'} did better than a blind guess: {names}."
    return f"{who}, {_counted(len(won))} did better than a blind guess: {names}."


def _over_seeds(rows: Sequence[Row]) -> Measure:
    values = tuple(row.value for row in rows if row.value is not None)
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    chances = [row.chance for row in rows if row.chance is not None]
    counts = [row.n for row in rows if row.n is not None]
    complete = values and len(lows) == len(highs) == len(values)
    return Measure(
        row=rows[0],
        value=sum(values) / len(values) if values else None,
        low=min(lows) if complete else None,
        high=max(highs) if complete else None,
        chance=sum(chances) / len(chances) if chances else None,
        n=sum(counts) if counts else None,
        values=values,
    )


def _answer(family: str, measures: list[Measure]) -> Answer:
    lines = []
    for mine in _by_attack(measures).values():
        lead = headline(mine)
        first = next(m for m in mine if m.row.metric == lead)
        name = " · ".join([first.row.attack or family, *varying(measures, first.row)])
        lines.append(Line(name, first, tuple(m for m in mine if m is not first)))
    # A headline that shows nothing must not hide another metric of the same attacks that does.
    heads = [line.lead for line in lines]
    found = [m for m in heads if m.judged == "leak"] or [m for m in measures if m.judged == "leak"]
    known = found or [m for m in heads if m.value is not None] or heads
    lead_measure = max(known, key=lambda m: m.advantage or (float("-inf"),))
    return Answer(family, lead_measure, tuple(lines))


def _by_attack(measures: Sequence[Measure]) -> dict[tuple[object, ...], list[Measure]]:
    groups: dict[tuple[object, ...], list[Measure]] = {}
    for m in measures:
        key = (m.row.family, m.row.attack, m.row.strategy, m.row.data, m.row.model)
        groups.setdefault(key, []).append(m)
    return groups


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


def _short(count: str) -> str:
    return count.removesuffix(" of 100")


def _counted(number: int) -> str:
    small = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return small[number] if number < len(small) else str(number)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
