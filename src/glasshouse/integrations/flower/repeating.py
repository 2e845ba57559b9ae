"""Holds a round that is run again against the one of that number which the record has."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from glasshouse.errors import BadInput, quoted
from glasshouse.recording import Recorder
from glasshouse.recording.description import check_text
from glasshouse.recording.reader import RecordedRound, read_recording
from glasshouse.recording.seen import whole

EXACTLY = partial(np.array_equal, equal_nan=True)

ROUNDED = partial(np.allclose, rtol=1e-6, atol=1e-12, equal_nan=True)
"""How a mean is compared: in single precision it depends on the order in which clients answered."""


class AnotherRun(BadInput):
    """The folder holds a round of another run, which must not be mixed with this one."""


class Repeated:
    """A round of the record that is run again: like `Seen`, but what is told of it must be in the record.

    Flower counts the rounds of each run from 1, so that a folder may hold those of another run.
    """

    due = True

    def __init__(self, recorder: Recorder, recorded: RecordedRound) -> None:
        self._recorder, self._recorded = recorder, recorded
        self._missing = {client.name: client for client in recorded.clients}
        self._total: dict[str, np.ndarray] = {}

    def check_sent(self, sent: Mapping[str, np.ndarray]) -> None:
        """Refuse another model than the one that was sent."""
        if not _same(self._recorded.sent, sent):
            raise self._other("which sent another model")

    def __enter__(self) -> "Repeated":
        return self

    def update(self, client: str, tensors: Mapping[str, Any], *, samples: int) -> None:
        """Refuse what is not the recorded update of `client`."""
        check_text("client", client)
        count = whole(samples, client)
        arrays = self._recorder.fitting(tensors, f"the update of client {quoted(client)}")
        recorded = self._missing.pop(client, None)
        if recorded is None:
            raise self._other(f"in which client {quoted(client)} took no part")
        if recorded.samples != count or (recorded.file is not None and not _same(recorded.file, arrays)):
            raise self._other(f"in which client {quoted(client)} sent another update")
        for name, array in arrays.items():
            if self._recorded.sum is not None and array.dtype.kind == "f":
                self._total[name] = self._total.get(name, 0) + array.astype(np.float64) * count

    def sum(self, mean: Mapping[str, Any], *, clients: Mapping[str, int]) -> None:
        """Refuse what is not the recorded mean, or is one of other clients."""
        counts = {client: whole(samples, client) for client, samples in clients.items()}
        if counts != {client.name: client.samples for client in self._recorded.clients}:
            raise self._other("in which the sum was of other clients, or of other numbers of samples")
        arrays = self._recorder.fitting(mean, "the sum")
        if self._recorded.sum is None or not _same(self._recorded.sum, arrays):
            raise self._other("in which the sum was another")
        self._missing.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and type(error) is not BadInput:
            return
        if self._missing:  # also where nothing of this round can be read
            raise self._other(f"in which client {quoted(next(iter(self._missing)))} took part")
        if self._total and self._recorded.sum is not None:
            mean = {name: array / self._recorded.samples for name, array in self._total.items()}
            if not _same(self._recorded.sum, mean, ROUNDED):
                raise self._other("in which the mean of the updates was another")

    def _other(self, how: str) -> AnotherRun:
        return AnotherRun(
            f"{self._recorder.folder} holds round {self._recorded.number} of another run, {how}; "
            "choose another folder for each run, or delete this one"
        )


def recorded_by_number(folder: Path) -> dict[int, RecordedRound]:
    """The rounds of the record in `folder`."""
    return {one.number: one for one in read_recording(folder).rounds}


def _same(file: Path, arrays: Mapping[str, np.ndarray], alike: Callable[..., bool] = EXACTLY) -> bool:
    """Whether a file holds these arrays."""
    recorded = load_file(file)
    return recorded.keys() == arrays.keys() and all(alike(recorded[name], arrays[name]) for name in recorded)
