"""What came of an attack, in three words that are told apart, and how bad it is.

An attack *leaks*, or *nothing is shown*, or it *could not be tried* here, for a reason. How bad a leak is
goes by the end of its interval nearest to a blind guess: by what is shown for sure. The levels of each metric
are conventions, set beforehand:

- A share (AUC, accuracy, label overlap) goes by how far it is on the way from a blind guess to certainty:
  moderate from a fifth of it (an AUC of 0.6), severe from three fifths (0.8, where a record in question is
  placed rightly four times of five), total from nine tenths.
- A TPR at a fixed FPR goes by how much more often members are accused than others: among as many of either
  an accusation is right three times of four from 3 times chance on (moderate), ten times of eleven from 10
  times on (severe); total where nine of ten members are found.
- A bound on epsilon goes by how sure somebody can become who began with a coin: 73% at 1 (moderate), 95% at 3
  (severe), 99.97% at 8 (total).
- A PSNR goes by what an image shows: from 18 dB on it counts as rebuilt (moderate), from 24 dB on details are
  seen (severe), from 30 dB on the eye finds no difference (total).
- A recovery rate counts images that should have been nobody's: moderate from 1 of 100, severe from 1 of 10,
  total from 9 of 10; near-exact ones are moderate from the first, severe from 1 of 100.
- A robust accuracy goes by what is left, and not by its distance to the score under random noise, which falls
  as a model gets worse: moderate below 0.8, severe below 0.4, total below 0.1.

A perfect score that is shown to be severe is total: no more could be had, and no sample could show more. A
leak on a scale that nobody described is moderate.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from glasshouse.verdicts.measure import Measure, leaks
from glasshouse.verdicts.metrics import about_the_model, family_words, metric_words

Outcome = Literal["leaks", "nothing shown", "could not be tried"]
Severity = Literal["none", "slight", "moderate", "severe", "total"]
End = Literal["shown", "point", "possible"]
"""Which end of an interval speaks: what is shown for sure, the estimate itself, or what is not excluded."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
ENDS: tuple[End, ...] = get_args(End)

SHUT_OUT = (
    "every client refused the model",
    "no single update reaches the server",
    "clients report nothing beside their updates",
    "the server sends nothing beside the model",
)
"""How reasons begin of attacks that did not run because there is nothing for the adversary to read."""

FAILED = "the round failed: "
"""What may stand before it."""

_UNDESCRIBED = 1.5
_SHARES = (0.2, 0.6, 0.9)
_OF_THE_WAY = {"recovery-rate": (0.01, 0.1, 0.9), "near-exact-rate": (0.0, 0.01, 0.9)}
_FIXED = {
    "psnr": (18.0, 24.0, 30.0),
    "most-exposed-psnr": (18.0, 24.0, 30.0),
    "robust-accuracy": (0.8, 0.4, 0.1),
}
_EPSILON = (1.0, 3.0, 8.0)
_RATIOS = (3.0, 10.0)
_FOUND = 0.9
_UNBOUNDED_SHARES = ("ssim", "advantage")


def outcome(measure: Measure) -> Outcome:
    """What came of one attack on one metric."""
    if measure.value is None:
        return "could not be tried"
    return "leaks" if measure.judged == "leak" else "nothing shown"


def outcome_of(measures: Iterable[Measure]) -> Outcome:
    """What came of several: a leak where any leaks, and not tried only where none of them was."""
    came = {outcome(measure) for measure in measures}
    return next((word for word in ("leaks", "nothing shown") if word in came), "could not be tried")


def reasons(measures: Iterable[Measure]) -> list[str]:
    """Why those that could not be tried could not, each reason once."""
    return list(dict.fromkeys(m.reason for m in measures if m.value is None))


def shut_out(measure: Measure) -> bool:
    """Whether an attack did not run because a defence, or how things are built, keeps the adversary out."""
    return measure.value is None and measure.reason.removeprefix(FAILED).startswith(SHUT_OUT)


def severity(measure: Measure, end: End = "shown") -> Severity:
    """How bad a leak is, by what is shown of it for sure unless another end is asked for."""
    return severity_word(degree(measure, end) or 0.0)


def severity_word(degree: float) -> Severity:
    """The word for a degree.

    >>> [severity_word(degree) for degree in (0.0, 0.5, 1.0, 2.9, 3.0)]
    ['none', 'slight', 'moderate', 'severe', 'total']
    """
    return "none" if degree <= 0 else SEVERITIES[min(int(degree), 3) + 1]


def degree(measure: Measure, end: End = "shown") -> float | None:
    """Severity as a number, from 0 (none) over 1 (moderate) and 2 (severe) to 3 (total) and at most 4.

    Metrics of every kind meet on this scale. None where that end is not known; a leak that no interval shows
    is one of 0.
    """
    if measure.value is None:
        return None
    number = at_end(measure, end)
    if measure.chance is None or number is None:
        return 0.0 if end == "shown" else None
    reached = _degree(measure, number)
    if end == "shown" and 2 <= reached < 3 and _perfect(measure):
        return 3.0
    return reached


def at_end(measure: Measure, end: End) -> float | None:
    """The number at one end of the interval; a bound from one side has no other end, and speaks for both."""
    if end == "point" or measure.value is None:
        return measure.value
    if measure.low is None or measure.high is None:
        return measure.low if measure.high is None else measure.high
    towards_chance = end == "shown"
    high_leaks = metric_words(measure.row.metric).leaks != "low"
    return measure.low if towards_chance == high_leaks else measure.high


def about_data(measure: Measure) -> bool:
    """Whether a measure says what an adversary learns of the training data; evasion fools the model."""
    return leaks(measure) and measure.row.family not in about_the_model()


def strongest(measures: Sequence[Measure]) -> Measure | None:
    """The measure that shows most, whatever its metric; one that could not be tried where all are so.

    Among those of one severity a family's headline goes first, then the degree; details count where nothing
    else was measured. Of several that show nothing the one that may have got furthest.
    """
    main = [m for m in measures if not metric_words(m.row.metric).detail]
    tried = [m for m in main or measures if m.value is not None]
    return max(tried or measures, key=_strength, default=None)


def _strength(measure: Measure) -> tuple[int, bool, bool, float, float]:
    headline = measure.row.metric == family_words(measure.row.family).headline
    judged = measure.judged in ("leak", "clear", "below")
    shown, at_point = degree(measure) or 0.0, degree(measure, "point") or 0.0
    return SEVERITIES.index(severity(measure)), judged, headline, shown, at_point


def levels(metric: str, chance: float) -> tuple[float, float, float] | None:
    """From where on a metric is moderate, severe and total, in its own numbers; None for an unknown scale.

    >>> [round(level, 2) for level in levels("auc", 0.5)]
    [0.6, 0.8, 0.95]
    """
    if metric in _FIXED:
        return _FIXED[metric]
    if metric.startswith("epsilon"):
        return _EPSILON
    if metric.startswith("tpr-at-"):
        moderate, severe = (min(ratio * chance, _FOUND) for ratio in _RATIOS)
        return moderate, severe, _FOUND
    words = metric_words(metric)
    if words.span != (0.0, 1.0) and metric not in _UNBOUNDED_SHARES:
        return None
    best = 0.0 if words.leaks == "low" else 1.0
    moderate, severe, total = (chance + share * (best - chance) for share in _OF_THE_WAY.get(metric, _SHARES))
    return moderate, severe, total


def _degree(measure: Measure, number: float) -> float:
    """Where a number lies between chance and the levels of its metric."""
    assert measure.chance is not None
    sign = -1.0 if metric_words(measure.row.metric).leaks == "low" else 1.0
    reached, chance = sign * number, sign * measure.chance
    if reached <= chance:
        return 0.0
    known = levels(measure.row.metric, measure.chance)
    if known is None:
        return _UNDESCRIBED
    moderate, severe, total = (sign * level for level in known)
    below = min(chance, moderate)
    steps = [(below, moderate), (moderate, severe), (severe, total), (total, _best(measure, total))]
    for step, (start, end) in enumerate(steps):
        if reached < end:
            return step + (reached - start) / (end - start)
    return 4.0


def _best(measure: Measure, total: float) -> float:
    """The most that can be had, as far as that is known."""
    words = metric_words(measure.row.metric)
    if words.span is None:
        return math.inf if not math.isfinite(total) else total + abs(total)
    return -words.span[0] if words.leaks == "low" else words.span[1]


def _perfect(measure: Measure) -> bool:
    words = metric_words(measure.row.metric)
    return words.span is not None and measure.value == words.span[words.leaks != "low"]
