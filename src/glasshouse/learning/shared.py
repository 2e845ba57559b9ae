"""Large values that processes share: written to a file once and mapped into the readers' memory."""

import mmap
import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle

from glasshouse.errors import BadInput

ALIGNMENT = 64


class Shared:
    """A picklable handle to a value.

    Arrays lie in the file as they lie in memory, so a worker maps them instead of copying; they are
    copy-on-write there. Inline, for one process or a cluster without a shared disk, the handle is the value.
    """

    def __init__(self, value: Any, path: Path | None, spans: tuple[tuple[int, int], ...]) -> None:
        self._value = value
        self._path = path
        self._spans = spans

    @classmethod
    def inline(cls, value: Any) -> "Shared":
        """A handle that carries the value itself."""
        return cls(value, None, ())

    @classmethod
    def in_file(cls, value: Any, path: Path) -> "Shared":
        """Write `value` to `path` and return a handle that carries the path."""
        arrays: list[pickle.PickleBuffer] = []
        head = cloudpickle.dumps(value, protocol=5, buffer_callback=arrays.append)
        spans = []
        try:
            with path.open("wb") as file:
                for part in (head, *(array.raw() for array in arrays)):
                    file.seek(-(-file.tell() // ALIGNMENT) * ALIGNMENT)
                    spans.append((file.tell(), file.tell() + len(part)))
                    file.write(part)
        except OSError as error:
            raise BadInput(
                f"{path.parent} cannot be written ({error.strerror}); free some space there or set TMPDIR"
            ) from error
        return cls(None, path, tuple(spans))

    def get(self) -> Any:
        """The value; a worker reads each file once."""
        return self._value if self._path is None else _read_once(self._path, self._spans)

    def take(self) -> Any:
        """The value, for its only reader: deletes the file."""
        if self._path is None:
            return self._value
        value = _read(self._path, self._spans)
        self.remove()
        return value

    def remove(self) -> None:
        """Delete the file; workers that have mapped it keep the value."""
        if self._path is not None:
            self._path.unlink()


def _read(path: Path, spans: tuple[tuple[int, int], ...]) -> Any:
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    head, *arrays = (view[start:stop] for start, stop in spans)
    return pickle.loads(head, buffers=arrays)


_read_once = lru_cache(maxsize=8)(_read)
