"""What a record says of its federation: `federation.json`, checked key by key."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from glasshouse.errors import BadInput, quoted
from glasshouse.learning.recipe import Recipe
from glasshouse.reading import read_file
from glasshouse.registry import unknown

FORMAT, VERSION = "glasshouse-record", 1
FILE = "federation.json"

LONGEST = 1_000_000
"""Bytes of a JSON file of a record; those of a thousand clients take a tenth of that."""

LONGEST_TEXT = 1000
"""Characters of a name, or of what else is said in words."""

MOST_SAMPLES = 1_000_000_000
"""Samples of one client."""

MOST_STEPS = 1_000_000
"""Steps of one client's training in a round, each of which attacks on updates look at."""

Kind = Literal["after", "delta"]
Channel = Literal["plain", "sum"]

REMEDY = "docs/records.md says what belongs there"


@dataclass(frozen=True, kw_only=True)
class Description:
    """A federation as its record describes it; what is null, or left out of the `recipe`, nobody told.

    `channel` says what the server saw, each update ("plain") or only their sum ("sum"), in which case the
    protocol that summed them may be `described`.
    """

    model: str | None = None
    shape: tuple[int, int, int] | None = None
    classes: int | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    channel: Channel = "plain"
    described: str | None = None
    strategy: str | None = None
    seed: int | None = None
    framework: tuple[str, str | None] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text("model.name", self.model, null=True)
        if self.shape is not None:
            sides = isinstance(self.shape, tuple | list) and len(self.shape) == 3
            if not sides or not all(_whole(side, 1, 2**20) for side in self.shape):
                raise _refusal("model.shape", self.shape, "three whole numbers: channels, height and width")
            object.__setattr__(self, "shape", tuple(self.shape))
        if self.classes is not None and not _whole(self.classes, 2, 2**31):
            raise _refusal("model.classes", self.classes, "a whole number of at least 2")
        object.__setattr__(self, "recipe", checked_recipe(self.recipe))
        if self.channel not in get_args(Channel):
            raise _refusal("channel", self.channel, f"one of {', '.join(get_args(Channel))}")
        check_text("described", self.described, null=True)
        check_text("strategy", self.strategy, null=True)
        if self.seed is not None and not _whole(self.seed, 0, 2**63):
            raise _refusal("seed", self.seed, "a whole number of at least 0")
        if self.framework is not None:
            check_text("framework.name", self.framework[0])
            check_text("framework.version", self.framework[1], null=True)
        for name, version in _table("versions", self.versions).items():
            check_text("versions", name)
            check_text(f"versions.{name}", version)

    def as_json(self) -> dict[str, Any]:
        """The content of `federation.json`."""
        name, version = self.framework or (None, None)
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": {
                "name": self.model,
                "shape": None if self.shape is None else list(self.shape),
                "classes": self.classes,
            },
            "recipe": dict(self.recipe),
            "channel": self.channel,
            **({} if self.described is None else {"described": self.described}),
            "strategy": self.strategy,
            "seed": self.seed,
            "framework": None if name is None else {"name": name, "version": version},
            "versions": dict(self.versions),
        }

    def check_steps(self, number: int, client: str, samples: int) -> None:
        """Refuse a client who trains in round `number` for more steps than attacks could look at.

        What the recipe leaves out is as attacks assume it.
        """
        recipe = self._training
        steps = recipe.total_steps(samples)
        if steps > MOST_STEPS:
            raise BadInput(
                f"round {number}, client {quoted(client)}: samples = {samples}, epochs = {recipe.epochs} and "
                f"batch_size = {recipe.batch_size} make {steps:,} steps of training; they may make at most "
                f"{MOST_STEPS:,}: correct round.json, or the recipe in {FILE}"
            )

    @cached_property
    def _training(self) -> Recipe:
        return Recipe(**self.recipe)

    def differs(self, other: "Description") -> str | None:
        """The first thing in which the two are not of the same federation, in words; null where they are.

        A federation goes on where versions have changed meanwhile.
        """
        for key in (one.name for one in dataclasses.fields(self) if one.name != "versions"):
            ours, theirs = getattr(self, key), getattr(other, key)
            if ours != theirs:
                return f"{key} {quoted(theirs)}, not {quoted(ours)}"
        return None


def read_description(folder: Path) -> Description:
    """What `federation.json` in `folder` says."""
    path = folder / FILE
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise BadInput(f"{path}: format is {quoted(content.get('format'))}, not {FORMAT!r}; {REMEDY}")
    if content.get("version") != VERSION or isinstance(content["version"], bool | float):
        raise BadInput(
            f"{path}: version {quoted(content.get('version'))} is unknown; this Glasshouse reads {VERSION}: "
            "update it, or write the record in that version"
        )
    try:
        return _described(content)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _described(content: Mapping[str, Any]) -> Description:
    keys = {one.name for one in dataclasses.fields(Description)} - {"shape", "classes"}
    check_keys("", content, {"format", "version", *keys})
    model = _table("model", content.get("model"))
    check_keys("model", model, {"name", "shape", "classes"})
    framework = _table("framework", content.get("framework"))
    check_keys("framework", framework, {"name", "version"})
    return Description(
        model=model.get("name"),
        shape=model.get("shape"),
        classes=model.get("classes"),
        recipe=_table("recipe", content.get("recipe")),
        channel=content.get("channel", "plain"),
        described=content.get("described"),
        strategy=content.get("strategy"),
        seed=content.get("seed"),
        framework=(framework["name"], framework.get("version")) if framework.get("name") else None,
        versions=_table("versions", content.get("versions")),
    )


def checked_recipe(recipe: Any) -> dict[str, Any]:
    """The entries of a recipe that are known, each of its type and in its range."""
    known = {one.name: str(one.type) for one in dataclasses.fields(Recipe)}
    entries = dict(_table("recipe", recipe))
    check_keys("recipe", entries, known)
    for key, value in entries.items():
        if not _of_kind(value, known[key]):
            rule = "one of the names that a recipe may have" if "Literal" in known[key] else known[key]
            raise _refusal(f"recipe.{key}", value, rule)
        if isinstance(value, list):
            entries[key] = tuple(value)
    try:
        Recipe(**entries)
    except BadInput as error:
        raise BadInput(f"recipe.{error}") from None
    return entries


def _of_kind(value: Any, kind: str) -> bool:
    """Whether `value`, as JSON has it, can be of the type that is written `kind`."""
    if value is None:
        return "None" in kind
    if "tuple" in kind:
        return isinstance(value, list | tuple) and all(_finite(part) for part in value)
    if isinstance(value, bool) or "bool" in kind:
        return isinstance(value, bool) and "bool" in kind
    if "float" in kind and "Literal" not in kind:
        return _finite(value)
    if "int" in kind and "Literal" not in kind:
        return _whole(value, 0, 2**31)
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file that is not too long, nor nested too deeply; its numbers are finite."""
    try:
        content: Any = json.loads(read_file(path, LONGEST), parse_constant=_no_number)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); {REMEDY}") from error
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply; {REMEDY}") from None
    except BadInput:
        raise
    except ValueError as error:  # wrong syntax, no UTF-8, or a number of thousands of digits
        raise BadInput(f"{path} is not valid JSON ({error}); {REMEDY}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path} holds {quoted(content)}, not an object; {REMEDY}")
    return dict(content)


def check_keys(where: str, table: Mapping[str, Any], known: Any) -> None:
    """Refuse a key that nobody reads."""
    dot = f"{where}." if where else ""
    for key in table:
        if key not in known:
            raise BadInput(unknown("key", f"{dot}{key}"[:LONGEST_TEXT], [f"{dot}{one}" for one in known]))


def check_text(key: str, value: Any, *, null: bool = False) -> None:
    """Refuse what is no text, or empty, or long, or that cannot be shown in a line."""
    if value is None and null:
        return
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT or not value.isprintable():
        rule = f"a text of 1 to {LONGEST_TEXT} characters that can be printed{' or null' if null else ''}"
        raise _refusal(key, value, rule)


def check_samples(key: str, value: Any, most: int = MOST_SAMPLES) -> None:
    """Refuse what is no number of samples."""
    if not _whole(value, 1, most):
        raise _refusal(key, value, f"a whole number from 1 to {most:,}")


def plain_name(name: Any) -> bool:
    """Whether `name` can only be that of a file in the folder where it stands."""
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name) is not None


def _table(key: str, value: Any) -> Mapping[str, Any]:
    """A mapping; none at all is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refusal(key, value, "a table of names and values")
    return value


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300 and math.isfinite(value)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _refusal(key: str, value: Any, rule: str) -> BadInput:
    return BadInput(f"{key} = {quoted(value)} does not fit; it must be {rule}")
