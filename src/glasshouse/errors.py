"""The errors that end a command with one line, the one by which an attack says that it does not apply, and
how a line names what went wrong."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

P = ParamSpec("P")

LONGEST_VALUE = 100
LONGEST_MESSAGE = 300
"""As many characters of a value, and of another library's message, fit into a line."""

LONGEST = 2000
"""Characters of a message that are shown."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
"""What the system says when a disk has no more space, or fails."""


class BadInput(ValueError):
    """Something the user gave cannot be used; the message names the value, the rule and the remedy.

    As text it is one line of bounded length, whatever names it holds: what a terminal would act on, or could
    not show, stands there as an escape.
    """

    def __str__(self) -> str:
        message = super().__str__()
        if len(message) > LONGEST:
            message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
        return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in message)


class Fault(BadInput):
    """The machine failed, and not what the user gave: a full disk, a damaged file, a worker that was killed.

    A fault passes: it is never a finding, and what it stopped is done when the command is run again.
    """


def one_line_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as the commands show it: without the place in the code that gives it."""
    ours = filename.startswith(str(Path(__file__).parent))
    return f"glasshouse: {message}\n" if ours else f"{filename}: {category.__name__}: {message}\n"


def disk_failed(error: BaseException) -> bool:
    """Whether `error` says that a disk is full, or fails, whatever was to be written."""
    return isinstance(error, OSError) and error.errno in FULL


def fault_of(error: BaseException) -> Fault | None:
    """`error` as a fault of the machine, if it is one: of the disk, or of the memory."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return Fault("memory ran out; lower --workers, and the same command goes on where it stopped")
    if isinstance(error, OSError):
        return Fault(f"{error}; see to it, and the same command goes on where it stopped")
    return None


class CannotRun(Exception):
    """The attack does not apply here; the message says why, and becomes the reason of a null finding."""


def reason_of(check: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> str | None:
    """Why `check` raises `CannotRun`; null where it does not."""
    try:
        check(*arguments, **options)
    except CannotRun as reason:
        return str(reason)
    return None


def quoted(value: object) -> str:
    """`value` as Python writes it, on one line, and cut where it is long.

    >>> quoted("two" + chr(10) + "lines"), quoted("x" * 200)[-25:]
    ("'two\\\\nlines'", 'xxx... (202 characters)')
    """
    try:
        return one_line(repr(value), LONGEST_VALUE)
    except Exception:  # a number of too many digits, or the repr of a user's own class
        return f"a value of type {type(value).__name__} that cannot be shown"


def named(error: BaseException) -> str:
    """The type and the message of `error`, on one line, and cut where it is long.

    >>> named(KeyError("absent"))
    "KeyError: 'absent'"
    """
    try:
        message = one_line(str(error), LONGEST_MESSAGE)
    except Exception:  # raised by the __str__ of a user's own exception
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def one_line(text: str, most: int) -> str:
    """`text` without line breaks and characters that cannot be printed, and at most about `most` long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * most]).split())
    return line if len(text) <= most else f"{line[: most - 10]}... ({len(text)} characters)"
