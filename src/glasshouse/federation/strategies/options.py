"""Options of strategies, checked at the door."""

import math

from glasshouse.errors import BadInput


def check_whole(strategy: str, option: str, value: object, least: int) -> None:
    """Refuse a `value` that is no whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _refusal(strategy, option, value, f"a whole number of at least {least}")


def check_number(
    strategy: str, option: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False
) -> None:
    """Refuse a `value` that is no finite number from `low`, or above it where that is open, to `high`."""
    rule = f"{'above' if open_low else 'at least'} {low:g}" + (
        f" and at most {high:g}" if high < math.inf else ""
    )
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refusal(strategy, option, value, f"a number {rule}")
    if not low <= value <= high or (open_low and value == low):
        raise _refusal(strategy, option, value, f"a number {rule}")


def check_interval(strategy: str, option: str, value: object, low: float, high: float) -> None:
    """Refuse a `value` that is no pair of ascending numbers above `low` and at most `high`."""
    numbers = [own for own in value if type(own) in (int, float)] if isinstance(value, tuple | list) else []
    if len(numbers) != 2 or len(value) != 2 or not low < numbers[0] <= numbers[1] <= high:  # type: ignore[arg-type]
        raise _refusal(strategy, option, value, f"two ascending numbers above {low:g} and up to {high:g}")


def check_choice(strategy: str, option: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a `value` that is none of `choices`."""
    if value not in choices:
        raise _refusal(strategy, option, value, f"one of {', '.join(choices)}")


def _refusal(strategy: str, option: str, value: object, rule: str) -> BadInput:
    return BadInput(f"{strategy} {option} = {value!r} is out of range; it must be {rule}")
