"""How to speak of a kind of evidence and of the metrics that score it."""

from dataclasses import dataclass
from typing import Literal

Direction = Literal["high", "low", "none"]


@dataclass(frozen=True)
class Metric:
    """How to speak of a metric.

    `says` completes a sentence whose subject is the adversary, `blind` the one about a blind guess;
    {value} and {chance} become "57 of 100" where the scale is 0 to 1, {raw} is the number itself.
    `leaks` says which end of the scale is good for the adversary; "none" for numbers that are no leak.
    A `detail` says again, or more finely, what another metric of the same attack says: it stands in the
    table of findings and leads an answer only where nothing else shows a leak.
    """

    label: str
    says: str
    blind: str = "a blind guess would score {chance}"
    leaks: Direction = "high"
    span: tuple[float, float] | None = (0.0, 1.0)
    unit: str = ""
    detail: bool = False


@dataclass(frozen=True)
class Family:
    """What a kind of attack is after, which metric leads, and how its verdicts are worded.

    `judges` says what a question is about, one and many of them. Where answers are yes or no, or ranks, they
    can be turned round: an attack that does worse than a blind guess has found something.
    """

    label: str
    question: str
    headline: str
    found: str = "leaks"
    not_found: str = "nothing shown"
    judges: tuple[str, str] = ("record", "records")
    turns_round: bool = True
