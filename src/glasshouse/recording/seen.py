"""One round while it is recorded."""

import json
import operator
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.errors import BadInput, quoted
from glasshouse.recording.arrays import not_written, packed, settle, write
from glasshouse.recording.description import check_samples, check_text
from glasshouse.recording.folders import round_folder

if TYPE_CHECKING:
    from glasshouse.recording.writer import Recorder


class Seen:
    """One round while it is recorded: what is told of it is written at once, and counts when it is whole."""

    def __init__(self, recorder: "Recorder", number: int, sent: dict[str, np.ndarray] | None) -> None:
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
            (recorder.folder / "final.safetensors").unlink(missing_ok=True)  # it is not that of the end
            self._folder.replace(target)
            settle(target.parent)
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


def whole(samples: Any, client: str) -> int:
    """A number of samples as a plain integer, whichever library counted them."""
    try:
        exact = isinstance(samples, float) and samples.is_integer()
        count = samples if isinstance(samples, bool) else int(samples) if exact else operator.index(samples)
    except TypeError:
        raise BadInput(f"client {quoted(client)}: samples = {quoted(samples)} is no whole number") from None
    check_samples(f"client {quoted(client)}: samples", count)
    return count
