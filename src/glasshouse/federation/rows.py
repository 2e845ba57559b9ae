"""Rows that are too many for memory: written one after the other to a file, and mapped where they are read.

The file has the layout of safetensors, with one tensor. Its header has a fixed length, as how many rows there
are is known last.
"""

import json
import math
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from glasshouse.errors import Fault
from glasshouse.store import hashed, place_of

HEADER = 512
"""Bytes before the first row: their count, as eight bytes, and a description in JSON."""

DTYPES: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}

WINDOW = 64 * 2**20
"""After so many bytes, what was read is handed back to the system, which can read it again."""

PAGEOUT = 21
"""Linux's advice to do so; what was written into a private mapping stays."""

CHUNK = 2**24


class Rows:
    """Rows of equal length in a file, which a name leads to, or which is gone with its last reader.

    The file is mapped when a row is first read: rows are views of memory that the system fills and empties.
    What is written into a row is seen by whoever holds these `Rows`, not by those who hold a copy of them or
    read the file. They travel to other processes as the name of the file.
    """

    def __init__(self, file: Path | BinaryIO) -> None:
        self._file = file.absolute() if isinstance(file, Path) else file
        self._memory: mmap.mmap | None = None
        self.shape, self._dtype, self._checksum = _described(file)

    def __len__(self) -> int:
        """How many rows there are."""
        return self.shape[0]

    def __getitem__(self, place: int) -> Tensor:
        """The row at `place`."""
        length, size = self.shape[1], self.shape[1] * self._dtype.itemsize
        memory = self.map()
        _hand_back(size)
        return torch.from_numpy(np.frombuffer(memory, self._dtype, length, HEADER + place * size))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return Rows, (self.path,)
        content = np.frombuffer(self.map(), self._dtype, offset=HEADER)
        return _written, (content.reshape(self.shape),)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Rows":
        return Rows(self._file)

    @property
    def path(self) -> Path | None:
        """The file, where it has a name."""
        return self._file if isinstance(self._file, Path) else None

    def check(self) -> None:
        """Refuse rows that are not those that were written; a process reads a file for it once."""
        if self.path is None:
            return
        try:
            written = self.path.stat()
            found = _digest(self.path, written.st_size, written.st_mtime_ns)
        except OSError as error:
            raise damaged(self.path, error.strerror) from error
        if found != self._checksum:
            raise damaged(self.path, "its content does not fit its checksum")

    def map(self) -> mmap.mmap:
        """The file in memory that is private to these rows."""
        if self._memory is None:
            with _opened(self._file) as file:
                self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            _mapped.add(self)
        return self._memory


_mapped: WeakSet[Rows] = WeakSet()
_read = 0


def _hand_back(size: int) -> None:
    """Count `size` bytes as read; when a window is full, hand back what this process has read of all rows."""
    global _read
    _read += size
    if _read > WINDOW and sys.platform == "linux":
        for rows in list(_mapped):
            rows.map().madvise(PAGEOUT)
        _read = size


class RowWriter:
    """Writes rows to `path`, or to a file without a name; used as a context, which leaves nothing half done.

    The file gets its name when `finish` is called. An interrupted writer's file is replaced by the next.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else path.absolute()
        self._partial = None if self._path is None else self._path.with_name(f".{self._path.name}.partial")
        self._hash = hashed(b"" if path is None else place_of(path))
        self._shape: tuple[int, int] | None = None
        self._dtype = np.dtype("<f4")

    def __enter__(self) -> "RowWriter":
        with self._writing():
            if self._partial is None:
                self._file: Any = tempfile.TemporaryFile(prefix="glasshouse-")
            else:
                self._partial.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._partial.open("wb")
            self._file.write(bytes(HEADER))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._partial is not None:
            self._file.close()
            self._partial.unlink(missing_ok=True)

    def add(self, rows: np.ndarray) -> None:
        """Write `rows`, shape (N, length), after those that are there."""
        before = 0 if self._shape is None else self._shape[0]
        self._shape, self._dtype = (before + len(rows), rows.shape[1]), rows.dtype
        content = np.ascontiguousarray(rows).data.cast("B")
        self._hash.update(content)
        with self._writing():
            self._file.write(content)

    def finish(self) -> Rows:
        """The rows that were written; there must be one at least."""
        assert self._shape is not None
        name = next(name for name, dtype in DTYPES.items() if dtype == self._dtype)
        size = math.prod(self._shape) * self._dtype.itemsize
        described = {
            "__metadata__": {"checksum": self._hash.hexdigest()},
            "rows": {"dtype": name, "shape": self._shape, "data_offsets": [0, size]},
        }
        header = json.dumps(described).encode().ljust(HEADER - 8)
        with self._writing():
            self._file.seek(0)
            self._file.write(len(header).to_bytes(8, "little") + header)
            self._file.flush()
            if self._partial is None or self._path is None:
                return Rows(self._file)
            os.fsync(self._file.fileno())
            self._partial.replace(self._path)
        rows = Rows(self._path)
        rows.map()  # they stay what they are when another file takes the name
        return rows

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where, remedy = (
                self._path or tempfile.gettempdir(),
                "choose another --out" if self._path else "set TMPDIR",
            )
            raise Fault(
                f"{where} cannot be written ({error.strerror}); free some space or {remedy}"
            ) from error


def damaged(file: Path, why: object) -> Fault:
    """What to say of a file of a training that cannot be read."""
    return Fault(f"{file} is damaged ({why}); {begin_anew(file.parent)}")


def begin_anew(folder: Path) -> str:
    """What to do about a training whose files in `folder` cannot be read."""
    return f"delete the folder {folder}: its training begins anew and ends with the same numbers"


def _written(rows: np.ndarray) -> Rows:
    """The rows in a file without a name."""
    with RowWriter(None) as writer:
        writer.add(rows)
        return writer.finish()


def _described(file: Path | BinaryIO) -> tuple[tuple[int, int], np.dtype[Any], str]:
    """The shape and type of the rows in `file`, and their checksum."""
    try:
        with _opened(file) as opened:
            header = json.loads(opened.read(HEADER)[8:])
            size = os.fstat(opened.fileno()).st_size
        count, length = header["rows"]["shape"]
        dtype, checksum = DTYPES[header["rows"]["dtype"]], header["__metadata__"]["checksum"]
        if size != HEADER + count * length * dtype.itemsize:
            raise ValueError(f"{size} bytes are not those of {count} rows")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(Path(str(file)), error) from error
    return (count, length), dtype, checksum


@contextmanager
def _opened(file: Path | BinaryIO) -> Iterator[BinaryIO]:
    """The file at its beginning."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            yield opened
    else:
        file.seek(0)
        yield file


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    """The checksum of the rows in a file that has this size and was changed at this time."""
    digest = hashed(place_of(path))
    with path.open("rb") as file:
        file.seek(HEADER)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
