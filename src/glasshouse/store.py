"""Run folders: what is written is whole or not there, and work that was done is not done again."""

import json
import os
import re
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from glasshouse.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a later run, sees all of it or what was there before."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(partial).chmod(0o644)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written ({error.strerror}); free some space or choose another --out"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON atomically; NaN is refused, as it is no JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_text(path: Path) -> str | None:
    """A text file's content, or None where there is none."""
    try:
        return path.read_text() if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}); choose another folder, or delete it") from error


def read_json(path: Path) -> Any:
    """Read a JSON file, with a clear error where it is damaged."""
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"{path} is damaged ({error}); delete it and run again") from error


def write_tensors(
    path: Path, tensors: "Mapping[str, Tensor]", notes: Mapping[str, str] | None = None
) -> None:
    """Write tensors as safetensors, atomically, with `notes` in the file's header."""
    from safetensors.torch import save

    write_bytes(
        path, save({name: tensor.contiguous() for name, tensor in tensors.items()}, dict(notes or {}))
    )


def read_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """The tensors and notes of a file that `write_tensors` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} is damaged ({error}); delete it and run again") from error


class RunFolder:
    """One run's folder: its configuration, its cached work and, when it is done, its results."""

    def __init__(self, path: Path, config: str) -> None:
        self.path = path
        kept = path / "config.toml"
        before = read_text(kept)
        if before is not None and before != config:
            raise BadInput(
                f"{path} holds a run with another configuration; choose another --out, or delete the folder"
            )
        if before is None and path.is_dir() and any(path.iterdir()):
            raise BadInput(f"{path} is not empty and holds no run; choose another --out")
        write_text(kept, config)

    @property
    def work(self) -> Path:
        """Where cached work lies."""
        return self.path / "work"

    def kept(self, name: str, kind: type[Value]) -> Value | None:
        """The value of type `kind` that is kept under `name`, or None where there is none yet."""
        from pydantic import TypeAdapter, ValidationError

        file = self.work / f"{name}.json"
        if not file.exists():
            return None
        try:
            return TypeAdapter(kind).validate_python(read_json(file))
        except ValidationError as error:
            raise BadInput(f"{file} is damaged; delete it and run again") from error

    def keep(self, name: str, value: Any) -> None:
        """Keep a value, of a type that pydantic knows, under `name`."""
        from pydantic import TypeAdapter

        write_json(self.work / f"{name}.json", TypeAdapter(type(value)).dump_python(value, mode="json"))


def slug(text: str) -> str:
    """`text` as a file name of its own: readable, and with a digest where characters had to go."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
    return readable if readable == text else f"{readable}-{zlib.crc32(text.encode()):08x}"


def open_run(out: Path | None, stem: str, config: str) -> RunFolder:
    """The folder of a run: `out`, or under `runs/` an unfinished one of this configuration, or a new one."""
    if out is not None:
        return RunFolder(out, config)
    number = 1
    while True:
        path = Path("runs") / f"{stem}-{number}"
        unfinished = read_text(path / "config.toml") == config and not (path / "report.html").exists()
        if unfinished or not path.exists():
            return RunFolder(path, config)
        number += 1
