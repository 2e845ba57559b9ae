"""What was measured in words: verdicts, numbers for an expert, sentences for everyone."""

import re
from collections.abc import Sequence

from glasshouse.report.words.names import adversary_words
from glasshouse.spelling import interval, listed, number, of_hundred
from glasshouse.verdicts.answers import AdversaryAnswers
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import NOT_RUN, family_words, metric_words


def verdict(measure: Measure) -> str:
    """The verdict; never more than this attack's interval supports."""
    family = family_words(measure.row.family)
    return {
        "leak": family.found,
        "clear": f"{family.not_found} (interval includes chance)",
        "below": f"{family.not_found} (interval on the wrong side of chance)",
        "unjudged": "not judged (no interval or no chance level)",
        "unknown": "could not be tried" if measure.row.metric == NOT_RUN else "not estimable",
    }[measure.judged]


def short_verdict(measure: Measure) -> str:
    """The verdict without its reason."""
    return verdict(measure).partition(" (")[0]


def caution(measure: Measure) -> str:
    """What the verdict alone would hide; usually nothing."""
    if measure.judged == "below" and family_words(measure.row.family).turns_round:
        return (
            "The attack did worse than a blind guess. That is no comfort: turned round, "
            "the same rule could do better than one."
        )
    return ""


def compact(measure: Measure) -> str:
    """The value with its interval, or that there is none."""
    words = metric_words(measure.row.metric)
    if measure.value is None:
        return words.label if measure.row.metric == NOT_RUN else f"{words.label}: not estimable"
    text = f"{words.label} {number(measure.value, words.unit)}"
    if measure.low is None and measure.high is None:
        return text
    return f"{text} ({interval(measure.low, measure.high, words.unit)})"


def expert(measure: Measure) -> str:
    """The numbers in one line: value, interval, chance, n, and the seeds' values where there are several."""
    words = metric_words(measure.row.metric)
    if measure.value is None:
        return f"{words.label}: not estimable ({measure.reason})"
    parts = [f"{words.label} {number(measure.value, words.unit)}"]
    if measure.low is not None or measure.high is not None:
        parts.append(f"95% interval {interval(measure.low, measure.high, words.unit)}")
    if measure.chance is not None:
        parts.append(f"chance {number(measure.chance, words.unit)}")
    if measure.n is not None:
        parts.append(f"n = {measure.n:,}".replace(",", "\u202f"))
    if len(measure.values) > 1:
        spread = interval(min(measure.values), max(measure.values), words.unit)
        parts.append(f"{len(measure.values)} seeds: {spread}")
    return ", ".join(parts)


def sentence(measure: Measure) -> str:
    """What the adversary achieved, for someone who does not know the metric."""
    who = adversary_words(measure.row.adversary or "adversary").subject
    words = metric_words(measure.row.metric)
    if measure.value is None:
        return f"What this adversary learns could not be estimated: {measure.reason}."
    shown = of_hundred if words.span == (0.0, 1.0) else (lambda v: number(v, words.unit))
    says = achievement(measure.row.metric, measure.row.family)
    says = says.format(value=shown(measure.value), raw=number(measure.value, words.unit))
    if measure.chance is None:
        return f"{who} {says}."
    chance = shown(measure.chance).removesuffix(" of 100")
    return f"{who} {says}; {words.blind.format(chance=chance)}."


def achievement(metric: str, family: str) -> str:
    """What a metric `says`, about records or whatever else the family judges."""
    one, many = family_words(family).judges
    return re.sub(r"\brecord(s?)\b", lambda word: many if word[1] else one, metric_words(metric).says)


def overall(answers: Sequence[AdversaryAnswers]) -> str:
    """The whole answer in a sentence."""
    if not answers:
        return "No attack was run, so this page says how good the model is and not what it gives away."
    won = [one for one in answers if one.leaks]
    tried = [one for one in answers if any(answer.lead.value is not None for answer in one.answers)]
    quiet = [one for one in tried if not one.leaks]
    several = len(answers) > 1
    who = f"Of {_counted(len(answers))} kinds of adversary" if several else "Of the one adversary tried"
    parts = []
    if len(won) == len(answers):
        parts.append(f"{who}, {'all' if several else 'it'} did better than a blind guess: {_named(won)}")
    elif won:
        parts.append(f"{who}, {_counted(len(won))} did better than a blind guess: {_named(won)}")
    else:
        parts.append(f"{who}, none did better than a blind guess; that is no proof that nothing leaks")
    if won and quiet:
        parts.append(f"nothing was shown for {_named(quiet)}, which is no proof of safety")
    if len(tried) < len(answers):
        parts.append(f"no attack of {_named([one for one in answers if one not in tried])} could be tried")
    return f"{'; '.join(parts)}."


def noticed(vetting: Measure) -> str:
    """Whether a client that vets what it receives would have noticed."""
    if vetting.value is None:
        return f"Not known: {vetting.reason}."
    word = {0.0: "No", 1.0: "Yes"}.get(vetting.value, "In part")
    if vetting.n == 1:
        outcome = "flags" if vetting.value else "finds nothing in"
        return f"{word}: glasshouse vet {outcome} the model it sent."
    if not vetting.n:
        return f"{word}: glasshouse vet flags {of_hundred(vetting.value)} models it sent."
    flagged = round(vetting.value * vetting.n)
    count = {0: f"none of the {vetting.n}", vetting.n: f"all {vetting.n}"}
    shown = count.get(flagged, f"{flagged} of the {vetting.n}")
    return f"{word}: glasshouse vet flags {shown} models it sent."


def _named(answers: Sequence[AdversaryAnswers]) -> str:
    return listed([f"the {adversary_words(one.adversary).label.lower()}" for one in answers])


def _counted(number: int) -> str:
    small = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return small[number] if number < len(small) else str(number)
