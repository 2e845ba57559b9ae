from dataclasses import dataclass
from typing import ClassVar

import pytest

from glasshouse.studies.address import Address


@dataclass(frozen=True)
class Federated(Address):
    pattern: ClassVar[str] = "federated/{data}/f-{share:g}/{clients}x{batch}"
    data: str
    share: float
    clients: int
    batch: int


@pytest.mark.parametrize(
    "address",
    [
        Federated("digits", 0.25, 4, 16),
        Federated("tiny-imagenet-20", 1.0, 100, 8),
        Federated("x", 1e-05, 0, 0),
    ],
)
def test_a_name_is_parsed_by_the_address_that_formats_it(address: Federated) -> None:
    assert Federated.parse(str(address)) == address


@pytest.mark.parametrize(
    "name",
    [
        "federated/digits/f-0.25/4",
        "federated/digits/lenet/f-0.25/4x16",
        "federated/digits/f-0.25/04x16",
        "federated/digits/f-0.250/4x16",
        "federated/digits/f-e/4x16",
        "table/digits/f-0.25/4x16",
        "federated/digits/f-0.25/4x16/",
    ],
)
def test_a_name_that_the_address_does_not_format_is_not_parsed(name: str) -> None:
    assert Federated.parse(name) is None


def test_the_addresses_among_many_names_come_once_each_and_in_order() -> None:
    names = ["federated/b/f-1/2x3", "other", "federated/a/f-1/2x3", "federated/b/f-1/2x3"]
    assert Federated.matching(names) == [Federated("b", 1.0, 2, 3), Federated("a", 1.0, 2, 3)]
