"""Writing the rounds of a federation, in whatever framework it runs."""

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import numpy as np

from glasshouse.errors import BadInput, Fault, quoted
from glasshouse.recording.arrays import (
    Form,
    as_arrays,
    forms_of,
    packed,
    read_forms,
    replace_whole,
)
from glasshouse.recording.description import FILE, Channel, Description, Kind, read_description
from glasshouse.recording.folders import recorded_rounds, round_folder
from glasshouse.recording.seen import Seen


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

    def round(self, number: int, sent: Mapping[str, Any]) -> Seen:
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


def _versions() -> dict[str, str]:
    """The versions of what a federation is mostly made of, as far as it is installed."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
