"""Options that a name carries, as in `pgd(steps=10)`, checked at the door; `owner` is that name."""

import math

from glasshouse.errors import BadInput, quoted

LARGEST_WHOLE = 10**9
LARGEST_NUMBER = 3.4e38
"""No option counts or measures more than that: what is larger fits no index, and no number of 32 bits."""


def check_whole(owner: str, option: str, value: object, least: int, most: int = LARGEST_WHOLE) -> None:
    """Refuse a `value` that is no whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        small = most == LARGEST_WHOLE and not (isinstance(value, int) and value > most)
        rule = f"of at least {least}" if small else f"in {least}..{most}"
        raise _refusal(owner, option, value, f"a whole number {rule}")


def check_number(
    owner: str,
    option: str,
    value: object,
    low: float,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Refuse a `value` that is no finite number from `low` to `high`, without an end that is open."""
    number, high = _as_number(value), min(high, LARGEST_NUMBER)
    on_open_end = (open_low and number == low) or (open_high and number == high)
    if number is None or not low <= number <= high or on_open_end:
        rule = f"a number {'above' if open_low else 'at least'} {low:g}"
        if high < LARGEST_NUMBER or (number is not None and number > high):
            rule += f" and {'below' if open_high else 'at most'} {high:g}"
        raise _refusal(owner, option, value, rule)


def check_share(owner: str, option: str, value: object) -> None:
    """Refuse a `value` that is not strictly between 0 and 1."""
    number = _as_number(value)
    if number is None or not 0 < number < 1:
        raise _refusal(owner, option, value, "a number above 0 and below 1")


def check_interval(owner: str, option: str, value: object, low: float, high: float) -> None:
    """Refuse a `value` that is no pair of ascending numbers above `low` and at most `high`."""
    ends = [_as_number(end) for end in value] if isinstance(value, tuple | list) else []
    numbers = [end for end in ends if end is not None]
    if not len(ends) == len(numbers) == 2 or not low < numbers[0] <= numbers[1] <= high:
        raise _refusal(owner, option, value, f"two ascending numbers above {low:g} and up to {high:g}")


def check_choice(owner: str, option: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a `value` that is none of `choices`."""
    if value not in choices:
        raise _refusal(owner, option, value, f"one of {', '.join(choices)}")


def check_flag(owner: str, option: str, value: object) -> None:
    """Refuse a `value` that is neither true nor false."""
    if not isinstance(value, bool):
        raise _refusal(owner, option, value, "True or False")


def _as_number(value: object) -> float | None:
    """`value`, where it is a finite number and not a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond the range of floats
        return None


def _refusal(owner: str, option: str, value: object, rule: str) -> BadInput:
    return BadInput(f"{owner} {option} = {quoted(value)} is out of range; it must be {rule}")
