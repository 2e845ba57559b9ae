"""What to audit: the configuration, as a TOML file or in Python."""

import json
import re
import reprlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from glasshouse.auditing.training_table import IMAGES, REPEATS, Table
from glasshouse.auditing.training_table import TrainingTable as TrainingTable
from glasshouse.errors import BadInput
from glasshouse.reading import parse_toml, read_file
from glasshouse.registry import unknown

Names = Annotated[tuple[str, ...], Field(strict=False)]
"""Several names, as a list or a tuple."""


Patterns = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(strict=False),
]
"""Several names, as a list or a tuple, or one by itself."""

MEMBERSHIP = ("loss-threshold", "gap", "mia-bad", "lira", "rmia", "bavaria", "stacked", "loss-trajectory")
"""The membership attacks that every audit runs unless it says otherwise."""

ALL = "all"
"""What stands for all defences of the catalogue."""

LONGEST = 1_000_000
"""Bytes of a configuration."""

SIDE = 4096
"""The longest side, in pixels, that images are resized to."""


class DataTable(Table):
    """The data, and who holds what of them; what is left out follows from the data.

    Data that name clients are divided as they say; from others `clients` are made by a `partition`, ten of
    them and at random unless it is said. Sizes left out are chosen to fit.
    """

    name: str = "digits"
    clients: int | None = Field(default=None, ge=1, le=REPEATS)
    partition: str | None = None
    holdout: Literal["within-clients", "whole-clients"] | None = None
    members: int | None = Field(default=None, ge=1, le=IMAGES)
    nonmembers: int | None = Field(default=None, ge=0, le=IMAGES)
    auxiliary: int | None = Field(default=None, ge=0, le=IMAGES)
    test: int | None = Field(default=None, ge=1, le=IMAGES)


class ModelTable(Table):
    """The network, the weights it starts from, which of them are trained, and the side of its images."""

    name: str = "lenet"
    weights: str = ""
    train: Patterns = ()
    image_size: int | None = Field(default=None, ge=1, le=SIDE)


class AttackTable(Table):
    """Which attacks run against which defences; the server's view of `observe` rounds is kept.

    Half of these are the first rounds, half the last. With `central` the same network is trained on all data
    in one place too, for comparison, and meets the evasion attacks. The top eigenvalue of every model's loss
    is measured on at most `curvature` training images. Attacks that need them share `shadows` shadow models,
    trained like the target or in one place, without defences. If `adaptive`, attacks to which that helps run
    once more under each defence, knowing it, with at most `adaptive_shadows` shadow models that are trained
    under it. The inversions of one model's updates take about `seconds` of a core together, and so does the
    `ladder` of realism: updates of a few training images, from the easiest to invert to those that clients
    send. With the one defence `all` a catalogue of them is searched. `limits` say what is accepted from each
    adversary: `verdicts.limits`.
    """

    attacks: Names = (
        *MEMBERSHIP,
        "gradient-alignment",
        "source-inference",
        "fgsm(eps=(0.01,0.02,0.05,0.1))",
        "pgd(eps=(0.01,0.02,0.05,0.1))",
        "strongest(eps=(0.01,0.02,0.05,0.1),steps=40,targets=3,queries=200)",
        "label-counts",
        "strongest-inversion",
        "saturated-head",
        "scale-mia-peeled(steps=3000,rounds=4)",
    )
    defences: Names = (
        "gaussian-noise(std=0.05)",
        "laplacian-noise(scale=0.05)",
        "pruning(fraction=0.7)",
        "pruning(fraction=0.95)",
        "pruning(fraction=0.99)",
        "clipping(norm=1.0)",
        "clipping(norm=1.0)+gaussian-noise(std=0.05)",
    )
    observe: int = Field(default=8, ge=1, le=REPEATS)
    central: bool = True
    curvature: int = Field(default=1000, ge=0, le=IMAGES)
    shadows: int = Field(default=8, ge=0, le=REPEATS)
    shadow_training: Literal["like-target", "central"] = "like-target"
    adaptive: bool = True
    adaptive_shadows: int = Field(default=4, ge=0, le=REPEATS)
    seconds: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    ladder: bool = True
    limits: dict[str, Any] = Field(default_factory=dict)

    @property
    def searches(self) -> bool:
        """Whether a catalogue of defences is searched."""
        return ALL in self.defences

    @property
    def named_defences(self) -> tuple[str, ...]:
        """The defences that are named one by one."""
        return tuple(defence for defence in self.defences if defence != ALL)


class Setting(Table):
    """Everything that decides the numbers of an audit."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    data: DataTable = DataTable()
    model: ModelTable = ModelTable()
    training: TrainingTable = TrainingTable()
    audit: AttackTable = AttackTable()


EXAMPLE = Setting(
    data=DataTable(
        clients=10,
        partition="dirichlet(alpha=0.5)",
        members=400,
        nonmembers=500,
        auxiliary=600,
        test=297,
    ),
    training=TrainingTable(fraction=0.5, rounds=30, epochs=5, batch_size=10, lr=0.1),
    audit=AttackTable(
        # All but gradient-alignment, which would take as long as all the others together.
        attacks=(
            *MEMBERSHIP,
            "source-inference",
            "fgsm(eps=(0.02,0.05,0.1))",
            "pgd(eps=(0.02,0.05,0.1),steps=10)",
            "strongest(eps=(0.02,0.05,0.1),steps=10,targets=3,queries=20)",
            "label-counts",
            "strongest-inversion",
            "saturated-head",
            "scale-mia-peeled(steps=250,rounds=2)",
            "mandrake",
        ),
        defences=(
            "gaussian-noise(std=0.05)",
            "pruning(fraction=0.95)",
            "clipping(norm=1.0)+gaussian-noise(std=0.05)",
        ),
        shadows=4,  # as many as are trained under each defence, so that the two differ in the defence alone
        seconds=2.0,
        ladder=False,  # on so short a search no rung says anything
    ),
)
"""The embedded example: handwritten digits in ten unequal hands, few enough to be learned by heart."""


def read_setting(path: Path) -> Setting:
    """The setting in a TOML file; an error names the line."""
    try:
        content = read_file(path, LONGEST)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); `glasshouse init` writes one") from error
    try:
        text = content.decode()
        values = parse_toml(text)
    except ValueError as error:  # wrong syntax, no UTF-8, or a number of thousands of digits
        raise BadInput(f"{path} is not valid TOML: {error}; `glasshouse init` writes one") from error
    try:
        return make_setting(values)
    except ValidationError as error:
        raise BadInput(f"{path}{_line(text, error)}: {explain(error)}") from None


def make_setting(values: dict[str, Any]) -> Setting:
    """The setting made of nested tables."""
    return Setting.model_validate(values)


def explain(error: ValidationError) -> str:
    """The first fault of a configuration, in one line."""
    fault = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "value_error":
        return f"{place}.{fault['ctx']['error']}"
    if fault["type"] == "extra_forbidden":
        table: Any = Setting
        for part in fault["loc"][:-1]:
            table = table.model_fields[str(part)].annotation
        return unknown(
            "key", place, [".".join([*map(str, fault["loc"][:-1]), key]) for key in table.model_fields]
        )
    return f"{place} = {_SHORT.repr(fault['input'])} does not fit: {fault['msg'].lower()}"


def as_toml(setting: Setting) -> str:
    """The setting as TOML, whole, with keys that are null left out; it reads back as the same setting."""
    lines = [f"seed = {setting.seed}"]
    for name in ("data", "model", "training", "audit"):
        lines += ["", f"[{name}]"]
        table: Table = getattr(setting, name)
        values = {key: value for key, value in table.model_dump().items() if value is not None}
        lines += [f"{key} = {_toml(value)}" for key, value in values.items() if not isinstance(value, dict)]
    if setting.audit.limits:
        lines += ["", "[audit.limits]"]
        lines += [f"{_quoted(key)} = {_toml(value)}" for key, value in setting.audit.limits.items()]
    text = "\n".join(lines) + "\n"
    try:
        make_setting(tomllib.loads(text))
    except ValidationError as error:
        raise BadInput(explain(error)) from None
    return text


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_quoted(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + "".join(f"\n    {_toml(item)}," for item in value) + ("\n]" if value else "]")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _quoted(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's too, but for the delete character, which TOML escapes."""
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadInput(f"{text!r} has bytes that are no UTF-8, which a configuration cannot hold; rename it")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class _Short(reprlib.Repr):
    """How a value is shown in a message: cut short, however long or deep it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 2, 80, 80

    def repr_int(self, number: int, level: int) -> str:
        return repr(number) if number.bit_length() <= 128 else f"a number of {number.bit_length()} bits"


_SHORT = _Short()


def _place(error: ValidationError) -> tuple[str | int, ...]:
    """Where the first fault is; of keys that do not go together, the one that the message begins with."""
    fault = error.errors()[0]
    if fault["type"] != "value_error":
        return fault["loc"]
    return *fault["loc"], str(fault["ctx"]["error"]).split()[0]


def _line(text: str, error: ValidationError) -> str:
    """Where in the file the first fault is: `, line 7`."""
    *tables, key = (part for part in _place(error) if not isinstance(part, int))
    header, wanted = "", ".".join(tables)
    for number, line in enumerate(text.splitlines(), 1):
        if table := re.match(r"\s*\[([^\]]+)\]", line):
            header = table[1].strip()
            if wanted == "" and header == key:
                return f", line {number}"
        elif header == wanted and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return f", line {number}"
    return ""
