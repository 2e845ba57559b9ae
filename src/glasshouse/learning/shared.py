"""Large values that processes share: written to a file once and mapped into the readers' memory."""

import mmap
import pickle
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle

from glasshouse.errors import Fault

ALIGNMENT = 64
LENGTH = 8
"""Bytes at the end of a file that say how long the table of its parts is, which lies before them."""


class Shared:
    """A picklable handle to a value.

    Arrays lie in the file as they lie in memory, so a worker maps them instead of copying; they are
    copy-on-write there. Inline, for one process or a cluster without a shared disk, the handle is the value.
    """

    def __init__(self, value: Any, path: Path | None) -> None:
        self._value = value
        self._path = path

    @classmethod
    def inline(cls, value: Any) -> "Shared":
        """A handle that carries the value itself."""
        return cls(value, None)

    @classmethod
    def in_file(cls, value: Any, path: Path) -> "Shared":
        """Write `value` to `path` and return a handle that carries the path.

        The file lasts as long as this handle; the copies of it that travel to workers own nothing.
        """
        dump(value, path)
        handle = cls(None, path)
        weakref.finalize(handle, path.unlink, missing_ok=True).atexit = False
        return handle

    def get(self) -> Any:
        """The value; a worker reads each file once."""
        return self._value if self._path is None else _load_once(self._path)

    def remove(self) -> None:
        """Delete the file; workers that have mapped it keep the value."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def dump(value: Any, path: Path) -> None:
    """Write `value` so that `path` holds all of it or does not exist."""
    arrays: list[pickle.PickleBuffer] = []
    head = cloudpickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    partial = path.with_name(f"{path.name}.partial")
    spans = []
    try:
        with partial.open("wb") as file:
            for part in (head, *(array.raw() for array in arrays)):
                file.seek(-(-file.tell() // ALIGNMENT) * ALIGNMENT)
                spans.append((file.tell(), file.tell() + len(part)))
                file.write(part)
            table = pickle.dumps(spans)
            file.write(table + len(table).to_bytes(LENGTH))
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise Fault(
            f"{path.parent} cannot be written ({error.strerror}); free some space there or set TMPDIR, "
            "and run the same command again"
        ) from error


def load(path: Path) -> Any:
    """What `dump` wrote to `path`, mapped into memory."""
    try:
        with path.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except OSError as error:
        raise Fault(f"{path} cannot be read ({error.strerror}); run the same command again") from error
    table = int.from_bytes(view[-LENGTH:])
    head, *arrays = (view[start:stop] for start, stop in pickle.loads(view[-LENGTH - table : -LENGTH]))
    return pickle.loads(head, buffers=arrays)


_load_once = lru_cache(maxsize=8)(load)
