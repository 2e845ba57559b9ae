"""Defences beside limits: which keep all of them, and which of those is cheapest."""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.verdicts.frontier import Choice, Frontier, accuracy_of, cost
from glasshouse.verdicts.limits import Check, Limits, check, not_kept


@dataclass(frozen=True)
class Option:
    """A choice with how it stands to every limit; `affordable` where its accuracy may be paid.

    `open` are the checks of limits that it does not keep.
    """

    choice: Choice
    checks: tuple[Check, ...]
    open: tuple[Check, ...]
    affordable: bool

    @property
    def keeps(self) -> bool:
        """Whether every limit is kept, at a price that may be paid, against all attacks."""
        return self.affordable and not self.choice.partial and not self.open

    @property
    def shown_to_fail(self) -> bool:
        """Whether a limit is shown to be broken, or the price is too high."""
        return not self.affordable or any(one.state == "breaks" for one in self.checks)


def weigh(compared: Frontier, limits: Limits) -> list[Option]:
    """Every choice beside the limits, in the frontier's order."""
    options = []
    for choice in compared.choices:
        checks = check(choice.measures, limits)
        affordable = _affordable(compared.base, choice, limits)
        options.append(Option(choice, tuple(checks), tuple(not_kept(checks, limits)), affordable))
    return options


def cheapest(options: Sequence[Option]) -> Option | None:
    """The most accurate of those that keep every limit; of equals the one with the fewest parts."""
    keeping = [option for option in options if option.keeps]
    return max(
        keeping, key=lambda one: (accuracy_of(one.choice), -one.choice.defence.count("+")), default=None
    )


def nearest(options: Sequence[Option]) -> Option | None:
    """What comes closest where nothing keeps every limit: fewest broken ones, affordable first."""
    defended = [option for option in options if option.choice.defence != "none"]

    def distance(option: Option) -> tuple[bool, int, int, float]:
        broken = sum(one.state == "breaks" for one in option.open)
        return not option.affordable, broken, len(option.open), -accuracy_of(option.choice)

    return min(defended, key=distance, default=None)


def _affordable(base: Choice | None, choice: Choice, limits: Limits) -> bool:
    """Whether the accuracy that a defence costs may be paid: at the estimate, or all that is possible."""
    price = cost(base, choice)
    if limits.accuracy is None or choice.defence == "none":
        return True
    if price is None:
        return False
    paid, _, most = price
    return (most if limits.end == "possible" and most is not None else paid) <= limits.accuracy
