"""Temporary folders, which hold training data: each goes with its run, or else at the start of the next.

A run holds a lock on a file in its folder for as long as it lives. The system frees it however the run ends.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glasshouse.errors import Fault

PREFIX = "glasshouse-run-"
LOCK = "lock"
DOOMED = ".doomed"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that only this user can read, until the context ends."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _locked(folder)
    except OSError as error:
        raise Fault(
            f"no temporary folder can be made ({error.strerror}); free some space, or set TMPDIR"
        ) from error
    try:
        yield folder
    finally:
        with suppress(OSError):
            _remove(folder)
        os.close(lock)


def remove_dead() -> None:
    """Remove the folders that runs of this user left when they were killed."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with suppress(OSError):
                _remove_if_dead(folder)


def _locked(folder: Path) -> int:
    """The lock of a folder; nobody sees its file before it is locked."""
    nameless = folder / f"{LOCK}.new"
    lock = os.open(nameless, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    nameless.rename(folder / LOCK)
    return lock


def _remove_if_dead(folder: Path) -> None:
    with _opened(folder) as handle:
        if os.fstat(handle).st_uid != os.getuid():
            return
        lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW, dir_fd=handle)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Delete a folder's files and then the folder.

    It gets another name first, so that no worker that is about to end writes to it, and its lock goes last:
    what is left after an interruption is known to be dead.
    """
    doomed = folder.with_suffix(DOOMED)
    folder.rename(doomed)
    with _opened(doomed) as handle:
        for entry in sorted(os.scandir(handle), key=lambda entry: entry.name == LOCK):
            os.unlink(entry.name, dir_fd=handle)
    doomed.rmdir()


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder that is no link to one."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)
