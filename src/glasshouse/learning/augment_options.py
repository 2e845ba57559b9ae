"""The names and options of augmentations, which can be checked without torch."""

from collections.abc import Callable, Mapping
from typing import Any

from glasshouse.errors import BadInput, quoted
from glasshouse.options import check_number, check_whole
from glasshouse.registry import parse_spec, unknown

CHECKS: Mapping[str, Mapping[str, Callable[[Any], None]]] = {
    "crop": {"pad": lambda pad: check_whole("crop", "pad", pad, 1, 1000)},
    "flip": {},
    "rotation": {"degrees": lambda angle: check_number("rotation", "degrees", angle, 0, 180, open_low=True)},
    "jitter": {
        "brightness": lambda share: check_number("jitter", "brightness", share, 0, 1),
        "contrast": lambda share: check_number("jitter", "contrast", share, 0, 1),
    },
}
"""For each augmentation its options, and what refuses a wrong value of each."""


def named_augmentations(spec: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The name and the options of each augmentation that `spec` joins.

    >>> named_augmentations("crop(pad=2)+flip")
    [('crop', {'pad': 2}), ('flip', {})]
    """
    return [_named(part) for part in spec.split("+")] if spec else []


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the augmentation does not take, or values that it does not."""
    checks = CHECKS[name]
    for option, value in options.items():
        if option not in checks:
            raise BadInput(f"{name} takes {' and '.join(checks) or 'no options'}, and no {option!r}")
        checks[option](value)


def _named(spec: str) -> tuple[str, Mapping[str, Any]]:
    name, options = parse_spec(spec, "augmentation")
    try:
        if name not in CHECKS:
            raise BadInput(unknown("augmentation", name, CHECKS))
        check_options(name, options)
    except BadInput as refusal:
        raise BadInput(f"augment = {quoted(spec)}: {refusal}") from refusal
    return name, options
