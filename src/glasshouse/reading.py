"""What may be opened: regular files, no longer than they should be, that fit into memory."""

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from glasshouse.errors import BadInput

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

MOST_DOTS = 100
"""In the keys of one line of TOML."""

STRING_OR_COMMENT = re.compile(
    r"""
      \"{3} (?: [^"\\] | \\[\s\S] | "(?!"") )*+ "{0,5}
    | '{3} (?: [^']                | '(?!'') )*+ '{0,5}
    | "    (?: [^"\\\n] | \\. )*+ "?
    | '    [^'\n]*+ '?
    | \#   [^\n]*+
    """,
    re.VERBOSE,
)


def check_regular(path: Path, most: int | None = None) -> None:
    """Refuse what is no regular file, as reading a pipe could wait for ever, or is over `most` bytes long.

    A file that is not there, or that may not be looked at, raises an OSError as opening it would.
    """
    try:
        found = path.stat()
    except ValueError as error:  # a NUL in the name
        raise BadInput(f"{path}: no file can have this name ({error}); check the path") from error
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise BadInput(f"{path} is {kind}; give a file")
    if most is not None and found.st_size > most:
        raise BadInput(f"{path} is {found.st_size:,} bytes long, over the limit of {most:,}; check the path")


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes."""
    check_regular(path, most)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:  # those under /proc have no length
        raise BadInput(f"{path} is over {most:,} bytes long, which is the limit; check the path")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in `text`; raises a ValueError where it is no TOML, or nested too deeply to be any of ours.

    Python takes time in proportion to the square of the parts of a dotted key: minutes for `a.a.a...`.
    """
    outside = STRING_OR_COMMENT.sub("", text)
    if any(line.count(".") > MOST_DOTS for line in outside.split("\n")):
        raise BadInput("nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadInput("nested too deeply") from None


def available_memory() -> int:
    """Bytes of memory that could be had: what the system calls available, else all that the machine has."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
