"""What each adversary achieved, led by the attack that got furthest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glasshouse.verdicts import measure as measuring
from glasshouse.verdicts.measure import Measure, leaks, reach
from glasshouse.verdicts.metrics import VETTING, metric_words
from glasshouse.verdicts.outcome import Outcome, outcome_of, reasons


@dataclass(frozen=True)
class Line:
    """One attack of an answer: the metric that leads, the others, and what is worth knowing beside them.

    `notes` are about the leading metric, `vetting` is what a client could have noticed.
    """

    name: str
    lead: Measure
    others: tuple[Measure, ...]
    beside: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()
    vetting: Measure | None = None


@dataclass(frozen=True)
class Answer:
    """What an adversary achieved in one family, led by the attack that got furthest, the first line."""

    family: str
    lead: Measure
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class AdversaryAnswers:
    """All answers of one adversary; `defence` is what was in force."""

    adversary: str
    defence: str
    answers: tuple[Answer, ...]

    @property
    def leaks(self) -> bool:
        """Whether any of its attacks did better than a blind guess."""
        return any(answer.lead.judged == "leak" for answer in self.answers)

    @property
    def outcome(self) -> Outcome:
        """What came of all its attacks: nothing shown is one thing, that none could be tried another."""
        return outcome_of(line.lead for answer in self.answers for line in answer.lines)

    @property
    def reasons(self) -> list[str]:
        """Why attacks of it could not be tried, each reason once."""
        return reasons(line.lead for answer in self.answers for line in answer.lines)


def answers_by_adversary(measures: Sequence[Measure]) -> list[AdversaryAnswers]:
    """The answers of each adversary that was tried, from the least access to the most."""
    return [
        _answers(name, [m for m in measures if m.row.adversary == name])
        for name in measuring.ordered_adversaries(measures)
    ]


def _answers(adversary: str, measures: Sequence[Measure]) -> AdversaryAnswers:
    defence = measuring.undefended([m for m in measures if leaks(m)])
    in_force = [m for m in measures if (m.row.defence or "none") == defence]
    leaking = [m for m in in_force if leaks(m)]
    beside = measuring.by_attack([m for m in in_force if not leaks(m)])
    families = dict.fromkeys(m.row.family for m in leaking)
    answers = tuple(
        _answer(family, [m for m in leaking if m.row.family == family], beside) for family in families
    )
    return AdversaryAnswers(adversary, defence, answers)


def _answer(
    family: str, measures: list[Measure], beside: Mapping[tuple[object, ...], list[Measure]]
) -> Answer:
    attacks = measuring.by_attack(measures)
    heads = [
        next(m for m in group if m.row.metric == measuring.headline(group)) for group in attacks.values()
    ]
    main = [m for m in measures if not metric_words(m.row.metric).detail]
    lead = _lead(heads, main, measures)
    lines = []
    for head, (key, group) in zip(heads, attacks.items()):
        name = " · ".join([head.row.attack or family, *measuring.varying(measures, head.row)])
        first = lead if lead in group else head
        others = tuple(m for m in group if m is not first and m in main)
        plain = tuple(m for m in beside.get(key, []) if not metric_words(m.row.metric).detail)
        vetting = next(iter(beside.get((VETTING, *key[1:]), [])), None)
        notes = dict.fromkeys(m.row.note for m in (first, head) if m.row.note and m.value is not None)
        lines.append((lead not in group, Line(name, first, others, plain, tuple(notes), vetting)))
    # The attack that leads comes first, the others after it, the strongest first.
    lines.sort(key=lambda line: reach(line[1].lead), reverse=True)
    lines.sort(key=lambda line: line[0])
    return Answer(family, lead, tuple(line for _, line in lines))


def _lead(heads: Sequence[Measure], main: Sequence[Measure], measures: Sequence[Measure]) -> Measure:
    """The measure that got furthest; `heads` are the attacks' headlines, `main` all but details."""
    # A headline that shows nothing must not hide another metric of the same attacks that does.
    tiers = ([m for m in tier if m.judged == "leak"] for tier in (heads, main, measures))
    leaking = next((tier for tier in tiers if tier), [])
    valued = [m for m in heads if m.value is not None]
    return max(leaking or [m for m in valued if not _mute(m)] or valued or heads, key=reach)


def _mute(measure: Measure) -> bool:
    """Whether an attack gained nothing and has no interval: less to lead with than one that was judged."""
    return measure.judged == "unjudged" and (measure.advantage is None or measure.advantage[0] <= 0)
