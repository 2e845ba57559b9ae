"""All adversaries in a sentence, and whether a client would have noticed."""

from collections.abc import Sequence

from glasshouse.report.words.adversaries import adversary_words
from glasshouse.spelling import listed, of_hundred
from glasshouse.verdicts.answers import AdversaryAnswers
from glasshouse.verdicts.measure import Measure


def overall(answers: Sequence[AdversaryAnswers]) -> str:
    """The whole answer in a sentence."""
    if not answers:
        return "No attack was run, so this page says how good the model is and not what it gives away."
    won = [one for one in answers if one.leaks]
    several = len(answers) > 1
    who = f"Of {_counted(len(answers))} kinds of adversary" if several else "Of the one adversary tried"
    if not won:
        return f"{who}, none did better than a blind guess; that is no proof that nothing leaks."
    if len(won) == len(answers):
        return f"{who}, {'all' if several else 'it'} did better than a blind guess: {_named(won)}."
    return (
        f"{who}, {_counted(len(won))} did better than a blind guess: {_named(won)}; "
        f"nothing was shown for {_named([one for one in answers if not one.leaks])}, "
        "which is no proof of safety."
    )


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
