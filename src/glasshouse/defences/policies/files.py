"""Policy files: a policy with the data and the network that it is for, as TOML.

    policy = "3-1-7+43-18-18"
    shape = [3, 32, 32]
    data = "cifar100"
    model = "resnet20-4"

    [scores]
    privacy = 0.21

`policy` and `shape` (channels, height, width) are needed; the rest says where the policy comes from. So does
what a search writes beside it: `classes`, `version`, `search` and the policies that it `ranked`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from glasshouse.defences.policies.policy import Policy, parse_policy
from glasshouse.errors import BadInput, quoted
from glasshouse.models.shapes import Shape
from glasshouse.options import LARGEST_NUMBER
from glasshouse.reading import parse_toml, read_file
from glasshouse.registry import unknown

LONGEST = 100_000
"""Bytes of a policy file."""

ACCOUNT = ("classes", "version", "search", "ranked")
"""Entries by which a search gives account of itself, and that nobody reads on."""


@dataclass(frozen=True)
class PolicyFile:
    """What a policy file says."""

    policy: Policy
    shape: Shape
    data: str | None = None
    model: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


def read_policy(path: Path) -> PolicyFile:
    """The content of the policy file at `path`."""
    try:
        content = read_file(path, LONGEST)
    except OSError as error:
        raise BadInput(f"policy file {path} cannot be read ({error.strerror}); check the path") from error
    try:
        entries = parse_toml(content.decode())
    except ValueError as error:  # wrong syntax, or no UTF-8
        raise BadInput(f"policy file {path} is not valid TOML: {error}; repair it") from error
    try:
        return _from_entries(entries)
    except BadInput as error:
        raise BadInput(f"policy file {path}: {error}") from None


def _from_entries(entries: dict[str, Any]) -> PolicyFile:
    for name in entries:
        if name not in (known := [*(entry.name for entry in fields(PolicyFile)), *ACCOUNT]):
            raise BadInput(unknown("entry", name, known))
    for name in ("policy", "shape"):
        if name not in entries:
            raise BadInput(f'it has no {name!r}; add one, as in policy = "3-1-7" and shape = [3, 32, 32]')
    for name in ("data", "model"):
        if not isinstance(entries.get(name, ""), str):
            raise BadInput(f"{name} = {quoted(entries[name])} is no text; write a name in quotes")
    return PolicyFile(
        parse_policy(entries["policy"]),
        _shape(entries["shape"]),
        entries.get("data"),
        entries.get("model"),
        _scores(entries.get("scores", {})),
    )


def _shape(value: object) -> Shape:
    sides = value if isinstance(value, list) else []
    if len(sides) != 3 or not all(type(side) is int and side > 0 for side in sides):
        raise BadInput(
            f"shape = {quoted(value)} is no shape; write channels, height and width as [3, 32, 32]"
        )
    return sides[0], sides[1], sides[2]


def _scores(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise BadInput(
            f"scores = {quoted(value)} is no table; write them under [scores], each as name = number"
        )
    for name, score in value.items():
        if type(score) not in (int, float) or not abs(score) <= LARGEST_NUMBER:
            raise BadInput(
                f"score {quoted(name)} = {quoted(score)} is out of range; it must be a finite number"
            )
    return value
