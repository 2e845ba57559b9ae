"""Writing the rounds of a federation, in whatever framework it runs."""

import json
import operator
import platform
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

import numpy as np

from glasshouse.errors import BadInput, Fault, quoted
from glasshouse.recording.arrays import (
    Form,
    as_arrays,
    forms_of,
    not_written,
    packed,
    read_forms,
    replace_whole,
    settle,
    write,
)
from glasshouse.recording.description import (
    FILE,
    Channel,
    Description,
    Kind,
    check_samples,
    check_text,
    read_description,
)

ROUND = re.compile(r"\d{4,9}")
"""The name of a round's folder."""


class Recorder:
    """Records a federation round by round into `folder`; a record of the same federation is continued.

    `model` is a name of the zoo or `package.module:factory`, `shape` that of an image, `recipe` what is known
    of how clients train: fields of `glasshouse.learning.recipe.Recipe`. `channel` says whether the server
    sees each update ("plain") or only their sum ("sum"), by the protocol that is `described`. Updates are
    weights "after" training, or a "delta": those less the weights sent.

    Every n-th round is recorded, beginning with the first, and of a round at most the first so many `clients`
    with their own update; of all of them together there is then the weighted mean. A round is in the folder
    when it is whole, and not before; so a federation may be killed at any time.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        model: str | None = None,
        shape: tuple[int, int, int] | None = None,
        classes: int | None = None,
        recipe: Mapping[str, Any] | None = None,
        channel: Channel = "plain",
        described: str | None = None,
        strategy: str | None = "fedavg",
        seed: int | None = None,
        framework: tuple[str, str | None] | None = None,
        versions: Mapping[str, str] | None = None,
        kind: Kind = "after",
        every: int = 1,
        clients: int | None = None,
    ) -> None:
        for name, value, least in (("every", every, 1), ("clients", clients, 0)):
            if value is not None and (not isinstance(value, int) or value < least):
                raise BadInput(f"{name} = {quoted(value)} is out of range; it must be at least {least}")
        if kind not in get_args(Kind):
            raise BadInput(f"kind = {quoted(kind)} is unknown; it must be one of {', '.join(get_args(Kind))}")
        self.folder, self.kind, self.every, self.clients = Path(folder), kind, every, clients
        described_as = Description(
            model=model,
            shape=shape,
            classes=classes,
            recipe=recipe or {},
            channel=channel,
            described=described,
            strategy=strategy,
            seed=seed,
            framework=framework,
            versions=_versions() | dict(versions or {}),
        )
        self._forms: Mapping[str, Form] | None = None
        self._open(described_as)
        self.description = described_as

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds that are recorded, in ascending order."""
        return recorded_rounds(self.folder)

    def round(self, number: int, sent: Mapping[str, Any]) -> "Seen":
        """Round `number`, counted from 1, in which the server sent the model `sent`: a context to record in.

        A round that is not due, or that is there already, costs nothing.
        """
        if not isinstance(number, int) or number < 1:
            raise BadInput(f"round = {quoted(number)} is out of range; rounds count from 1")
        due = (number - 1) % self.every == 0 and not round_folder(self.folder, number).exists()
        return Seen(self, number, self.fitting(sent, f"the model sent in round {number}") if due else None)

    def finish(self, final: Mapping[str, Any]) -> None:
        """Record the model after the last round."""
        arrays = self.fitting(final, "the final model")
        last = self.rounds[-1:]
        notes = {"follows": str(last[0])} if last else {}
        replace_whole(self.folder / "final.safetensors", packed(arrays, notes))

    def fitting(self, tensors: Mapping[str, Any], what: str) -> dict[str, np.ndarray]:
        """The tensors as arrays, where they have the names and shapes of the first model of the record.

        Whole numbers, such as batch norm's counters of steps, may be left out.
        """
        arrays = as_arrays(tensors, what)
        if self._forms is None:
            self._forms = self._recorded_forms() or forms_of(arrays)
        for name, array in arrays.items():
            expected = self._forms.get(name)
            if expected is None or expected.shape != array.shape:
                first = "there is none" if expected is None else str(expected.shape)
                raise BadInput(
                    f"{what}: {quoted(name)} has shape {array.shape}, in the first model of the record "
                    f"{first}; record one model in one folder"
                )
        missing = [name for name, form in self._forms.items() if form.floating and name not in arrays]
        if missing:
            raise BadInput(f"{what} lacks {quoted(missing[0])}; give all tensors of the state_dict")
        return arrays

    def _open(self, description: Description) -> None:
        """Begin the record, or go on with one of the same federation."""
        if (self.folder / FILE).exists():
            other = description.differs(read_description(self.folder))
            if other is not None:
                raise BadInput(
                    f"{self.folder} records another federation: with {other}; choose another folder"
                )
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(not entry.name.startswith(".partial-") for entry in self.folder.iterdir()):
                raise BadInput(f"{self.folder} is not empty and holds no record; choose another folder")
        except OSError as error:
            raise Fault(f"{self.folder} cannot be made ({error.strerror}); choose another folder") from error
        content = json.dumps(description.as_json(), indent=1) + "\n"
        replace_whole(self.folder / FILE, content.encode())

    def _recorded_forms(self) -> Mapping[str, Form] | None:
        rounds = self.rounds
        return read_forms(round_folder(self.folder, rounds[0]) / "sent.safetensors") if rounds else None


class Seen:
    """One round while it is recorded: what is told of it is written at once, and counts when it is whole."""

    def __init__(self, recorder: Recorder, number: int, sent: dict[str, np.ndarray] | None) -> None:
        self._recorder, self._number, self._sent = recorder, number, sent
        self._folder = recorder.folder / "rounds" / f".partial-{number:04d}"
        self._clients: dict[str, tuple[int, str | None]] = {}
        self._total: dict[str, np.ndarray] = {}
        self._summed: int | None = None
        self._disk = ThreadPoolExecutor(1)
        self._settling: list[Future[None]] = []

    @property
    def due(self) -> bool:
        """Whether the round is recorded; where it is not, what is told of it is passed over."""
        return self._sent is not None

    def __enter__(self) -> "Seen":
        if self._sent is not None:
            self._remove()
            try:
                self._folder.mkdir(parents=True)
                self._write("sent.safetensors", packed(self._sent))
            except OSError as error:
                raise not_written(self._folder, error) from error
            except BaseException:
                self._remove()
                raise
        return self

    def update(self, client: str, tensors: Mapping[str, Any], *, samples: int) -> None:
        """Record what `client` sent, who trained on so many `samples`, in the order of the server's sum."""
        if not self.due:
            return
        check_text("client", client)
        count = whole(samples, client)
        if client in self._clients:
            raise BadInput(
                f"client {quoted(client)} sent twice in round {self._number}; name each client once"
            )
        what = f"the update of client {quoted(client)} in round {self._number}"
        arrays, bound = self._recorder.fitting(tensors, what), self._recorder.clients
        file: str | None = f"update-{self._kept():04d}.safetensors"
        if bound is not None:
            self._add(arrays, count)
            file = file if self._kept() < bound else None
        if file is not None:
            self._write(file, packed(arrays))
        self._clients[client] = (count, file)

    def sum(self, mean: Mapping[str, Any], *, clients: Mapping[str, int]) -> None:
        """Record the weighted mean of what all `clients` sent, each with its number of samples."""
        if not self.due:
            return
        if self._summed is not None:
            raise BadInput(f"the sum of round {self._number} is there already; record one")
        counts = {client: whole(samples, client) for client, samples in clients.items()}
        for client in counts:
            check_text("client", client)
        if not counts or self._clients.keys() - counts.keys():
            raise BadInput(f"the sum of round {self._number} is not of all clients; name all that are in it")
        arrays = self._recorder.fitting(mean, f"the sum of round {self._number}")
        self._write("sum.safetensors", packed(arrays))
        self._clients = {
            client: (count, self._clients.get(client, (0, None))[1]) for client, count in counts.items()
        }
        self._summed = sum(counts.values())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.due:
            return
        try:
            if kind is None:
                self._finish()
        finally:
            self._disk.shutdown()
            self._remove()

    def _finish(self) -> None:
        """Write who took part, and let the round be seen."""
        recorder, samples = self._recorder, sum(count for count, _ in self._clients.values())
        if self._summed is None and self._kept() < len(self._clients):
            mean = {name: (array / samples).astype(np.float32) for name, array in self._total.items()}
            self._write("sum.safetensors", packed(mean))
            self._summed = samples
        before = [number for number in recorder.rounds if number < self._number]
        told = {
            "round": self._number,
            "follows": before[-1] if before else None,
            "kind": recorder.kind,
            "sent": "sent.safetensors",
            "clients": [
                {"name": client, "samples": count, "file": file}
                for client, (count, file) in self._clients.items()
            ],
            "sum": None if self._summed is None else {"file": "sum.safetensors", "samples": self._summed},
        }
        self._write("round.json", (json.dumps(told, indent=1) + "\n").encode())
        for settled in self._settling:
            settled.result()
        target = round_folder(recorder.folder, self._number)
        try:
            self._folder.replace(target)
            settle(target.parent)
            (recorder.folder / "final.safetensors").unlink(missing_ok=True)  # it was not the last round
        except OSError as error:
            raise not_written(target, error) from error

    def _add(self, arrays: Mapping[str, np.ndarray], samples: int) -> None:
        for name, array in arrays.items():
            if array.dtype.kind == "f":
                weighted = array.astype(np.float64) * samples
                self._total[name] = self._total[name] + weighted if name in self._total else weighted

    def _kept(self) -> int:
        return sum(file is not None for _, file in self._clients.values())

    def _write(self, name: str, content: bytes) -> None:
        """Write a file; the disk takes it while clients train on."""
        write(self._folder / name, content)
        self._settling.append(self._disk.submit(settle, self._folder / name))

    def _remove(self) -> None:
        """Remove what is not whole, of this round or of one that was killed."""
        if self._folder.exists():
            shutil.rmtree(self._folder, ignore_errors=True)


def round_folder(folder: Path, number: int) -> Path:
    """Where a round lies when it is whole."""
    return folder / "rounds" / f"{number:04d}"


def recorded_rounds(folder: Path) -> tuple[int, ...]:
    """The numbers of the rounds in a record, in ascending order."""
    rounds = folder / "rounds"
    if not rounds.is_dir():
        return ()
    return tuple(sorted(int(entry.name) for entry in rounds.iterdir() if ROUND.fullmatch(entry.name)))


def whole(samples: Any, client: str) -> int:
    """A number of samples as a plain integer, whichever library counted them."""
    try:
        exact = isinstance(samples, float) and samples.is_integer()
        count = samples if isinstance(samples, bool) else int(samples) if exact else operator.index(samples)
    except TypeError:
        raise BadInput(f"client {quoted(client)}: samples = {quoted(samples)} is no whole number") from None
    check_samples(f"client {quoted(client)}: samples", count)
    return count


def _versions() -> dict[str, str]:
    """The versions of what a federation is mostly made of, as far as it is installed."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
