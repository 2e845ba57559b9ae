"""Options of every attack, defence, strategy and channel: whatever is written, it is taken or refused."""

import inspect
import math

import pytest

from glasshouse.errors import BadInput
from glasshouse.listing import REGISTRIES
from glasshouse.options import (
    check_choice,
    check_flag,
    check_interval,
    check_number,
    check_share,
    check_whole,
)

ODD = [
    "None", "'x'", "[]", "{}", "()", "-1", "0", "1e308", "1e999", "-1e999", "9" * 400, "0x" + "f" * 5000,
    "True", "b'x'", "1j", "{1}", "[[[[]]]]", "{'a': {1: [2]}}", "(1, 'x')", "[1e308, 1e308]", "'\\x00'",
    "1e-320", "2.5",
]  # fmt: skip


def refusal(make, *arguments):
    """What the refusal says; nothing where what is asked for is made."""
    try:
        make(*arguments)
    except BadInput as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("kind", ["attacks", "defences", "strategies", "channels"])
def test_every_option_takes_or_refuses_in_one_line_whatever_is_written(kind):
    registry = REGISTRIES[kind]
    for name in registry:
        for option in inspect.signature(registry.load(name)).parameters:
            for value in ODD:
                said = refusal(registry.make, f"{name}({option}={value})")
                assert "\n" not in said
                assert len(said) < 600


CHECKS = [
    (check_whole, (1,)), (check_number, (0,)), (check_share, ()), (check_interval, (0, 1)),
    (check_choice, (("a", "b"),)), (check_flag, ()),
]  # fmt: skip


@pytest.mark.parametrize(("check", "rule"), CHECKS, ids=[check.__name__ for check, _ in CHECKS])
def test_what_is_no_number_of_use_is_refused_in_one_short_line(check, rule):
    for value in (10**5000, 10**400, 1e308, math.inf, math.nan, None, [[]], {}, "x" * 10**6, object()):
        said = refusal(check, "pgd", "steps", value, *rule)
        assert said.startswith("pgd steps = ")
        assert " is out of range; it must be " in said
        assert len(said) < 300


def test_large_numbers_that_can_be_used_are_taken():
    check_whole("pgd", "steps", 10**9, 1)
    check_number("pgd", "steps", 3e38, 0)


def test_the_largest_whole_number_is_named_where_it_is_exceeded():
    with pytest.raises(BadInput, match=r"a whole number in 1\.\.1000000000"):
        check_whole("pgd", "steps", 10**12, 1)
    with pytest.raises(BadInput, match="a whole number of at least 1"):
        check_whole("pgd", "steps", 0, 1)
