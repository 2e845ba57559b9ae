"""Run folders: work that was done is not done again, unless other code did it."""

import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from glasshouse.errors import BadInput, Fault
from glasshouse.provenance import Origin
from glasshouse.store import keep, kept, read_text, write_text

Value = TypeVar("Value")

SHOWN = (
    *("results.json", "results.csv", "curves.json", "study.json", "environment.json", "checksums.json"),
    *("report.html", "figures", "weights", "scores.npz"),
)
"""What a finished run leaves for its readers."""

CACHED = ("work", "seeds", "gallery")
ABANDONED = 3600
"""After so many seconds a file that was half written is nobody's any more."""


class RunFolder:
    """One run's folder: its configuration, its cached work and, when it is done, its results.

    The configuration's file also says what the numbers come from. Where code has changed since, `news` says
    so in words, and what it decided is gone.
    """

    def __init__(self, path: Path, config: str, origin: Origin | None = None) -> None:
        self.path = path
        self.news = ""
        origin = origin or Origin()
        file = path / "config.toml"
        before = read_text(file)
        if before is None and path.is_dir() and any(path.iterdir()):
            raise BadInput(f"{path} is not empty and holds no run; choose another --out")
        if before is not None:
            self._go_on(config, origin, before)
            self._sweep()
        write_text(file, _header(origin) + config)

    @property
    def work(self) -> Path:
        """Where cached work lies."""
        return self.path / "work"

    def kept(self, name: str, kind: type[Value]) -> Value | None:
        """The value of type `kind` that is kept under `name`; None where there is none, or a damaged one."""
        return kept(self.work / f"{name}.json", kind)

    def keep(self, name: str, value: Any) -> None:
        """Keep a value, of a type that pydantic knows, under `name`."""
        keep(self.work / f"{name}.json", value)

    def drop(self, name: str) -> None:
        """Remove the folder `name` of cached work."""
        _remove(self.work / name)

    def _go_on(self, config: str, origin: Origin, before: str) -> None:
        """Refuse another configuration, or other data; drop what other code made."""
        code, given, rest = _read_header(before)
        if rest != config:
            raise BadInput(
                f"{self.path} holds a run with another configuration; "
                "choose another --out, or delete the folder"
            )
        changed = _changed(code, {**origin.code, **origin.parts})
        others = _changed(given, origin.given)
        if others and not changed:
            raise BadInput(
                f"{self.path} holds a run of other {' and '.join(others)}; "
                "choose another --out, or delete the folder"
            )
        if changed:
            self.news = (
                f"{', '.join(changed)} changed since the run in {self.path}: what it decided is computed anew"
            )
            everything = others or any(name not in {*origin.parts} for name in changed)
            for name in (*SHOWN, *(CACHED if everything else ())):
                _remove(self.path / name)

    def _sweep(self) -> None:
        """Remove files that a killed run left half written."""
        for partial in self.path.rglob(".partial-*"):
            if time.time() - partial.stat().st_mtime > ABANDONED:
                _remove(partial)


def open_run(out: Path | None, stem: str, config: str, origin: Origin | None = None) -> RunFolder:
    """The folder of a run: `out`, or under `runs/` an unfinished one of this configuration, or a new one."""
    if out is not None:
        return RunFolder(out, config, origin)
    number = 1
    while True:
        path = Path("runs") / f"{stem}-{number}"
        before = read_text(path / "config.toml")
        same = before is not None and _read_header(before)[2] == config
        if (same and not (path / "report.html").exists()) or not path.exists():
            return RunFolder(path, config, origin)
        number += 1


BY, FROM = "# by ", "# from "


def _header(origin: Origin) -> str:
    """What the numbers come from, as comments."""
    by = [f"{BY}{name} {digest}\n" for name, digest in {**origin.code, **origin.parts}.items()]
    return "".join([*by, *(f"{FROM}{name} {digest}\n" for name, digest in origin.given.items())])


def _read_header(text: str) -> tuple[dict[str, str], dict[str, str], str]:
    """The code and what was given, as `_header` writes them, and the configuration."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # what else splits lines may stand in a name
    code, given = (
        dict(_entry(line.removeprefix(mark)) for line in lines if line.startswith(mark))
        for mark in (BY, FROM)
    )
    return code, given, "".join(line for line in lines if not line.startswith((BY, FROM)))


def read_origin(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the file of a run's configuration says of its code and of what was given."""
    code, given, _ = _read_header(text)
    return code, given


def _entry(line: str) -> tuple[str, str]:
    name, _, digest = line.strip().rpartition(" ")
    return name, digest


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def _remove(path: Path) -> None:
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    except OSError as error:
        raise Fault(f"{path} cannot be removed ({error.strerror}); remove it and run again") from error
