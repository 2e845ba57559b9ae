"""Each adversary's answer, and the whole in a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glasshouse.report.measure import (
    Measure,
    by_attack,
    headline,
    leaks,
    ordered_adversaries,
    undefended,
    varying,
)
from glasshouse.report.words import Adversary, adversary_words
from glasshouse.spelling import listed, of_hundred
from glasshouse.verdicts.metrics import VETTING, family_words, metric_words


@dataclass(frozen=True)
class Line:
    """One attack in a card: the metric that leads, the others, and what is worth knowing beside them.

    `remark` is what was noted about the leading metric; `vetting` what a client could have noticed.
    """

    name: str
    lead: Measure
    others: tuple[Measure, ...]
    beside: tuple[Measure, ...] = ()
    remark: str = ""
    vetting: Measure | None = None


@dataclass(frozen=True)
class Answer:
    """What an adversary achieved in one family, led by the attack that got furthest, the first line."""

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


def cards(measures: Sequence[Measure]) -> list[Card]:
    """A card for each adversary that was tried, from the least access to the most."""
    made = []
    for name in ordered_adversaries(measures):
        told = [m for m in measures if m.row.adversary == name]
        defence = undefended([m for m in told if leaks(m)])
        told = [m for m in told if (m.row.defence or "none") == defence]
        beside = by_attack([m for m in told if not leaks(m)])
        mine = [m for m in told if leaks(m)]
        families = dict.fromkeys(m.row.family for m in mine)
        answers = tuple(
            _answer(family, [m for m in mine if m.row.family == family], beside) for family in families
        )
        made.append(Card(name, adversary_words(name), defence, answers))
    return made


def overall(made: Sequence[Card]) -> str:
    """The whole answer in a sentence."""
    if not made:
        return "No attack was run, so this page says how good the model is and not what it gives away."
    won = [card for card in made if any(answer.lead.judged == "leak" for answer in card.answers)]
    who = f"Of {_counted(len(made))} kinds of adversary" if len(made) > 1 else "Of the one adversary tried"
    if not won:
        return f"{who}, none did better than a blind guess; that is no proof that nothing leaks."
    names = listed([f"the {card.words.label.lower()}" for card in won])
    if len(won) == len(made):
        return f"{who}, {'all' if len(made) > 1 else 'it'} did better than a blind guess: {names}."
    rest = listed([f"the {card.words.label.lower()}" for card in made if card not in won])
    return (
        f"{who}, {_counted(len(won))} did better than a blind guess: {names}; "
        f"nothing was shown for {rest}, which is no proof of safety."
    )


def noticed(vetting: Measure) -> str:
    """Whether a client that vets what it receives would have noticed."""
    if vetting.value is None:
        return f"Not known: {vetting.reason}."
    word = {0.0: "No", 1.0: "Yes"}.get(vetting.value, "In part")
    if vetting.n == 1:
        found = "flags" if vetting.value else "finds nothing in"
        return f"{word}: glasshouse vet {found} the model it sent."
    if not vetting.n:
        return f"{word}: glasshouse vet flags {of_hundred(vetting.value)} models it sent."
    flagged = round(vetting.value * vetting.n)
    count = {0: f"none of the {vetting.n}", vetting.n: f"all {vetting.n}"}
    shown = count.get(flagged, f"{flagged} of the {vetting.n}")
    return f"{word}: glasshouse vet flags {shown} models it sent."


def _answer(
    family: str, measures: list[Measure], beside: Mapping[tuple[object, ...], list[Measure]]
) -> Answer:
    groups = by_attack(measures)
    attacks = list(groups.values())
    heads = [next(m for m in mine if m.row.metric == headline(mine)) for mine in attacks]
    main = [m for m in measures if not metric_words(m.row.metric).detail]
    # A headline that shows nothing must not hide another metric of the same attacks that does.
    found = next((some for tier in (heads, main, measures) if (some := _leaking(tier))), [])
    told = [m for m in heads if m.value is not None]
    lead = max(found or [m for m in told if not _mute(m)] or told or heads, key=_reach)
    lines = []
    for head, (key, mine) in zip(heads, groups.items()):
        name = " · ".join([head.row.attack or family, *varying(measures, head.row)])
        first = lead if lead in mine else head
        shown = [m for m in mine if m is not first and m in main]
        further = beside.get(key, [])
        plain = tuple(m for m in further if not metric_words(m.row.metric).detail)
        vetting = next(iter(beside.get((VETTING, *key[1:]), [])), None)
        remark = _remark(head, [*mine, *further])
        lines.append((lead not in mine, Line(name, first, tuple(shown), plain, remark, vetting)))
    # The attack that leads comes first, the others after it, the strongest first.
    lines.sort(key=lambda line: _reach(line[1].lead), reverse=True)
    lines.sort(key=lambda line: line[0])
    return Answer(family, lead, tuple(line for _, line in lines))


def _remark(head: Measure, measures: Sequence[Measure]) -> str:
    """What was noted about the leading metric alone: what an attack was given stands in all its rows."""
    if head.value is None or len(measures) == 1:
        return ""
    noted = [one for one in head.row.assumes if any(one not in m.row.assumes for m in measures)]
    return "; ".join(noted)


def _leaking(measures: Sequence[Measure]) -> list[Measure]:
    return [m for m in measures if m.judged == "leak"]


def _mute(measure: Measure) -> bool:
    """Whether an attack gained nothing and has no interval: less to lead with than one that was judged."""
    return measure.judged == "unjudged" and (measure.advantage is None or measure.advantage[0] <= 0)


def _reach(measure: Measure) -> tuple[bool, float]:
    """How far an attack got; gains are compared within the family's headline, which goes before others."""
    gain = measure.advantage[0] if measure.advantage else float("-inf")
    return measure.row.metric == family_words(measure.row.family).headline, gain


def _counted(number: int) -> str:
    small = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return small[number] if number < len(small) else str(number)
