"""One measure in words: its verdict, its numbers for an expert, a sentence for everyone."""

import re

from glasshouse.report.words.adversaries import adversary_words
from glasshouse.spelling import interval, number, of_hundred
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
        "unknown": "not estimable",
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
