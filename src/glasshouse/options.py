"""Options that a name carries, as in `pgd(steps=10)`, checked at the door; `owner` is that name."""

import math

from glasshouse.errors import BadInput


def check_whole(owner: str, option: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a `value` that is no whole number from `least` to `most`, or without end where that is null."""
    fine = isinstance(value, int) and not isinstance(value, bool)
    if not fine or value < least or (most is not None and value > most):  # type: ignore[operator]
        rule = f"of at least {least}" if most is None else f"in {least}..{most}"
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
    number = _as_number(value)
    on_open_end = (open_low and number == low) or (open_high and number == high)
    if number is None or not low <= number <= high or on_open_end:
        rule = f"a number {'above' if open_low else 'at least'} {low:g}"
        if high < math.inf:
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


def _as_number(value: object) -> float | None:
    """`value`, where it is a finite number and not a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _refusal(owner: str, option: str, value: object, rule: str) -> BadInput:
    return BadInput(f"{owner} {option} = {value!r} is out of range; it must be {rule}")
