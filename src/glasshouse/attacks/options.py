"""Options of attacks that several of them share, checked at the door."""

from glasshouse.errors import BadInput


def check_whole(attack: str, option: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a `value` that is no whole number from `least` to `most`, or without end where that is null."""
    fine = isinstance(value, int) and not isinstance(value, bool)
    if not fine or value < least or (most is not None and value > most):  # type: ignore[operator]
        rule = f"of at least {least}" if most is None else f"in {least}..{most}"
        raise BadInput(f"{attack} {option} = {value!r} is out of range; it must be a whole number {rule}")
