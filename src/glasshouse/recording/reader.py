"""Reading a record: who took part in each round, and in which files it lies; every file is inside its folder.

A record comes from anywhere, so all that it says is checked before anything of it is used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from safetensors import SafetensorError, safe_open

from glasshouse.errors import BadInput, named, quoted
from glasshouse.reading import check_regular
from glasshouse.recording.arrays import Form, read_forms
from glasshouse.recording.description import (
    FILE,
    REMEDY,
    Description,
    Kind,
    check_keys,
    check_samples,
    check_text,
    plain_name,
    read_description,
    read_json,
)
from glasshouse.recording.folders import ROUND

FINAL = "final.safetensors"
TOLD = {"round", "follows", "kind", "sent", "clients", "sum"}
"""The keys of `round.json`."""


@dataclass(frozen=True)
class RecordedClient:
    """A client of a round: its name, its samples, and the file of its update where that was kept."""

    name: str
    samples: int
    file: Path | None


@dataclass(frozen=True)
class RecordedRound:
    """A round: the file of the model sent, the clients in the order of their sum, and the file of that."""

    number: int
    kind: Kind
    sent: Path
    clients: tuple[RecordedClient, ...]
    sum: Path | None
    follows: int | None = None

    @property
    def samples(self) -> int:
        """Those of all clients together."""
        return sum(client.samples for client in self.clients)

    @property
    def files(self) -> list[Path]:
        """All files of tensors."""
        updates = [client.file for client in self.clients]
        return [file for file in (self.sent, *updates, self.sum) if file is not None]


@dataclass(frozen=True)
class Recording:
    """A record as it lies in its folder; rounds in which nobody took part are left out."""

    folder: Path
    description: Description
    rounds: tuple[RecordedRound, ...]
    final: Path | None

    @property
    def first(self) -> Path:
        """The first model that it holds, which all others are like."""
        files = [one.sent for one in self.rounds[:1]] + ([] if self.final is None else [self.final])
        return files[0]

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients, in the order in which they first took part."""
        return tuple(dict.fromkeys(client.name for one in self.rounds for client in one.clients))


def read_recording(folder: Path) -> Recording:
    """Read and check everything but the numbers of the tensors."""
    if not (folder / FILE).exists():
        raise BadInput(f"{folder} holds no {FILE}, so it is no record; {REMEDY}")
    _check_inside(folder / FILE)
    description = read_description(folder)
    rounds = tuple(_rounds(folder))
    final = folder / FINAL if (folder / FINAL).is_symlink() or (folder / FINAL).exists() else None
    if final is not None:
        _check_inside(final)
    recording = Recording(folder, description, tuple(one for one in rounds if one.clients), final)
    for one in recording.rounds:
        for client in one.clients:
            description.check_steps(one.number, client.name, client.samples)
    _check_whole(folder, rounds, final)
    _check_forms(recording)
    return recording


def _rounds(folder: Path) -> Iterator[RecordedRound]:
    """The rounds in ascending order; what was not finished begins with a dot, and is none."""
    rounds = folder / "rounds"
    if rounds.is_symlink():
        raise _outside(rounds)
    try:
        entries = sorted(rounds.iterdir()) if rounds.exists() else []
    except OSError as error:
        raise BadInput(f"{rounds} cannot be read ({error.strerror}); {REMEDY}") from error
    numbers = {}
    for entry in entries:
        if entry.name.startswith("."):
            continue
        number = int(entry.name) if ROUND.fullmatch(entry.name) else 0
        if not number or entry.name != f"{number:04d}":
            raise BadInput(f"{entry} is no round; name the folder of round 7 0007, and move others away")
        numbers[number] = entry
    for number in sorted(numbers):
        yield _round(numbers[number], number)


def _round(folder: Path, number: int) -> RecordedRound:
    path = folder / "round.json"
    if folder.is_symlink():
        raise _outside(folder)
    _check_inside(path)
    told = read_json(path)
    try:
        return _told(folder, number, told)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _told(folder: Path, number: int, told: Mapping[str, Any]) -> RecordedRound:
    check_keys("", told, TOLD)
    if told.get("round") != number or isinstance(told["round"], bool | float):
        raise BadInput(f"round = {quoted(told.get('round'))} in the folder of round {number}; {REMEDY}")
    kind = told.get("kind", "after")
    if kind not in get_args(Kind):
        raise BadInput(f"kind = {quoted(kind)} is unknown; it must be one of {', '.join(get_args(Kind))}")
    follows = told.get("follows")
    if follows is not None and (not isinstance(follows, int) or not 0 < follows < number):
        raise BadInput(f"follows = {quoted(follows)} is no round before {number}; {REMEDY}")
    clients = tuple(_clients(folder, told.get("clients")))
    one = RecordedRound(
        number,
        kind,
        _file(folder, "sent", told.get("sent")),
        clients,
        _sum(folder, told.get("sum"), clients),
        follows,
    )
    for held in (client.name for client in clients if client.file is None and one.sum is None):
        raise BadInput(f"client {quoted(held)} has no file, and there is no sum either; {REMEDY}")
    for file in one.files:
        if one.files.count(file) > 1:
            raise BadInput(f"{file.name} is named twice; give every update a file of its own")
    return one


def _clients(folder: Path, listed: Any) -> Iterator[RecordedClient]:
    if not isinstance(listed, list):
        raise BadInput(f"clients = {quoted(listed)} is no list; {REMEDY}")
    seen: set[str] = set()
    for place, client in enumerate(listed):
        where = f"clients.{place}"
        if not isinstance(client, Mapping):
            raise BadInput(f"{where} = {quoted(client)} is no table of name, samples and file; {REMEDY}")
        check_keys(where, client, {"name", "samples", "file"})
        check_text(f"{where}.name", client.get("name"))
        check_samples(f"client {quoted(client['name'])}: samples", client.get("samples"))
        if client["name"] in seen:
            raise BadInput(f"client {quoted(client['name'])} is listed twice; list each client once")
        seen.add(client["name"])
        file = client.get("file")
        where = f"client {quoted(client['name'])}: file"
        yield RecordedClient(
            client["name"], client["samples"], None if file is None else _file(folder, where, file)
        )


def _sum(folder: Path, told: Any, clients: tuple[RecordedClient, ...]) -> Path | None:
    if told is None:
        return None
    if not isinstance(told, Mapping):
        raise BadInput(f"sum = {quoted(told)} is no table of file and samples; {REMEDY}")
    check_keys("sum", told, {"file", "samples"})
    check_samples("sum.samples", told.get("samples"), most=2**62)
    samples = sum(client.samples for client in clients)
    if told["samples"] != samples:
        raise BadInput(
            f"sum.samples = {told['samples']}, but the clients have {samples}; list all that are in it"
        )
    return _file(folder, "sum.file", told.get("file"))


def _file(folder: Path, key: str, name: Any) -> Path:
    if not plain_name(name) or not name.endswith(".safetensors"):
        raise BadInput(
            f"{key} = {quoted(name)} does not fit; it must be the plain name of a .safetensors file in its "
            "round's folder"
        )
    _check_inside(folder / name)
    return folder / str(name)


def _check_inside(path: Path) -> None:
    """Refuse what is no file of its own in the record, as a link could lead anywhere."""
    if path.is_symlink():
        raise _outside(path)
    try:
        check_regular(path)
    except FileNotFoundError:
        raise BadInput(f"{path} is missing; restore it, or remove its round") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); check its rights") from error


def _outside(path: Path) -> BadInput:
    return BadInput(
        f"{path} is a link, which could lead out of the record; put what it leads to in its place"
    )


def _check_whole(folder: Path, rounds: tuple[RecordedRound, ...], final: Path | None) -> None:
    """Refuse a record that lacks a round which the next one says it has."""
    if not any(one.clients for one in rounds) and final is None:
        raise BadInput(f"{folder} holds no round and no final model; record some rounds first")
    there = {one.number for one in rounds}
    follows = {f"round {one.number}": one.follows for one in rounds if one.follows is not None}
    if final is not None and (last := _noted(final)) is not None:
        follows[FINAL] = last
        if last < max(there, default=last):
            raise BadInput(
                f"{final} is of round {last}, and there are later rounds; delete it, or finish anew"
            )
    for what, before in follows.items():
        if before not in there:
            raise BadInput(
                f"{folder}: {what} follows round {before}, which is missing; restore rounds/{before:04d}"
            )


def _noted(final: Path) -> int | None:
    """After which round the final model was recorded, where its file says so."""
    try:
        with safe_open(final, framework="np") as file:
            follows = (file.metadata() or {}).get("follows")
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{final} cannot be read: {named(error)}; restore it, or delete it") from error
    if follows is None:
        return None
    if not follows.isascii() or not follows.isdecimal() or not 0 < len(follows) < 10:
        raise BadInput(f"{final}: follows = {quoted(follows)} is no round; finish the record anew")
    return int(follows)


def _check_forms(recording: Recording) -> None:
    """Refuse tensors of other names or shapes than those of the first model."""
    first: tuple[Path, Mapping[str, Form]] | None = None
    for one in recording.rounds:
        owners = {one.sent: "the model sent", one.sum: "the sum"}
        owners |= {client.file: f"client {quoted(client.name)}" for client in one.clients}
        for file in one.files:
            forms = read_forms(file)
            first = first or (file, forms)
            _check_alike(f"round {one.number}, {owners[file]}", file, forms, first)
    if recording.final is not None:
        forms = read_forms(recording.final)
        _check_alike("the final model", recording.final, forms, first or (recording.final, forms))


def _check_alike(
    who: str, file: Path, forms: Mapping[str, Form], first: tuple[Path, Mapping[str, Form]]
) -> None:
    reference, expected = first
    for name, form in forms.items():
        if name not in expected:
            raise BadInput(f"{who}: {file} has {quoted(name)}, which {reference} has not; record one model")
        if form.shape != expected[name].shape:
            raise BadInput(
                f"{who}: {quoted(name)} has shape {form.shape} in {file}, and {expected[name].shape} in "
                f"{reference}; record one model"
            )
    for name, form in expected.items():
        if form.floating and name not in forms:
            raise BadInput(f"{who}: {file} lacks {quoted(name)}, which {reference} has; record one model")
