"""Files that are whole or not there, and that show when they were damaged."""

import hashlib
import json
import os
import re
import tempfile
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from glasshouse.errors import Fault

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")

CHECKSUM = "checksum"
UNSEALED = "0" * 32
"""Where a checksum will stand."""

LONGEST_NAME = 80
"""Characters of a file's name that come from what a user wrote; a file system takes 255 in all."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a later run, sees all of it or what was there before."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
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
        raise Fault(
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
        raise Fault(
            f"{path} cannot be read ({error}); choose another --out, or delete the folder {path.parent}: "
            "what it held is computed anew"
        ) from error


def write_sealed(path: Path, value: Any) -> None:
    """Write `value` as JSON atomically, with a checksum that fits this place alone."""
    write_json(path, {CHECKSUM: _checksum_of(path, value), "value": value})


def read_sealed(path: Path) -> Any:
    """What `write_sealed` wrote; raises `Fault` where a single bit of it has changed."""
    try:
        sealed = json.loads(path.read_text())
        if set(sealed) != {CHECKSUM, "value"} or sealed[CHECKSUM] != _checksum_of(path, sealed["value"]):
            raise ValueError("its checksum does not fit")
        return sealed["value"]
    except (ValueError, TypeError, OSError, RecursionError) as error:
        raise _damaged(path, error) from error


def keep(path: Path, value: Any) -> None:
    """Keep a value, of a type that pydantic knows, in a sealed file."""
    from pydantic import TypeAdapter

    write_sealed(path, TypeAdapter(Any).dump_python(value, mode="json"))


def kept(path: Path, kind: type[Value]) -> Value | None:
    """The value of type `kind` that is kept in `path`; None where there is none, or a damaged one."""
    from pydantic import TypeAdapter, ValidationError

    if not is_there(path):
        return None
    try:
        return TypeAdapter(kind).validate_python(read_sealed(path))
    except (Fault, ValidationError):
        warnings.warn(f"{path} is damaged; what it held is computed anew", stacklevel=2)
        return None


def is_there(path: Path) -> bool:
    """Whether there is a file; raises `Fault` where a folder has its place, so that none can be written."""
    if path.is_dir():
        raise Fault(f"{path} is a folder, where a file belongs; delete the folder {path}: it is made anew")
    return path.exists()


def _checksum_of(path: Path, value: Any) -> str:
    digest = hashed(place_of(path))
    digest.update(json.dumps(value, sort_keys=True, allow_nan=False).encode())
    return digest.hexdigest()


def place_of(path: Path) -> bytes:
    """The names of a file and of its folder, to which it is sealed.

    So a file that took another's place is found out, and a run's folder can still be moved.
    """
    return f"{path.parent.name}/{path.name}/".encode(errors="surrogateescape")


def checksum_of_file(path: Path) -> str:
    """A digest of a file's content, of which never more than a piece is in memory."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, hashed).hexdigest()
    except OSError as error:
        raise Fault(f"{path} cannot be read ({error.strerror}); check its rights") from error


def write_tensors(
    path: Path, tensors: "Mapping[str, Tensor]", notes: Mapping[str, str] | None = None
) -> None:
    """Write tensors as safetensors, atomically, with `notes` and a checksum of this place in the header."""
    import torch
    from safetensors.torch import save

    unshared = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    unsealed = save(unshared, {**(notes or {}), CHECKSUM: UNSEALED})
    start = tensors_start(unsealed)
    write_bytes(path, _sealed_header(path, unsealed[:start], hashed(unsealed[start:])) + unsealed[start:])


def tensors_start(content: bytes) -> int:
    """Where the tensors begin in a safetensors file, or in its first bytes: after length and header."""
    return 8 + int.from_bytes(content[:8], "little")


def hashed(content: "bytes | memoryview" = b"") -> "hashlib.blake2b":
    """The hash that a checksum begins with: of the tensors' bytes, to which more may be added."""
    return hashlib.blake2b(content, digest_size=16)


def _sealed_header(path: Path, unsealed: bytes, tensors: "hashlib.blake2b") -> bytes:
    """A safetensors header whose checksum, so far `UNSEALED`, is that of the `tensors`, place and itself."""
    whole = tensors.copy()
    whole.update(place_of(path) + unsealed)
    return unsealed.replace(_note(UNSEALED), _note(whole.hexdigest()), 1)


def _note(checksum: str) -> bytes:
    return f'"{CHECKSUM}":"{checksum}"'.encode()


def read_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """The tensors and notes of a file that `write_tensors` wrote; raises `Fault` where a bit has changed."""
    from safetensors import SafetensorError, safe_open

    try:
        check_tensors(path)
        with safe_open(path, framework="pt") as file:
            notes = dict(file.metadata())
            del notes[CHECKSUM]
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_notes(path: Path) -> dict[str, str]:
    """The notes of a file that `write_tensors` wrote, without its tensors; none where it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError):
        return {}


def check_tensors(path: Path, chunk: int = 2**20) -> None:
    """Raise `ValueError` where the checksum of a safetensors file is missing or does not fit."""
    with path.open("rb") as file:
        length = file.read(8)
        if len(length) < 8 or (start := tensors_start(length)) > path.stat().st_size:
            raise ValueError("its header is incomplete")
        header = length + file.read(start - 8)
        digest = hashed()
        while content := file.read(chunk):
            digest.update(content)
    found = re.search(_note("([0-9a-f]{32})"), header)
    if found is None:
        raise ValueError("it has no checksum")
    unsealed = header.replace(found[0], _note(UNSEALED), 1)
    if _sealed_header(path, unsealed, digest) != header:
        raise ValueError("its checksum does not fit")


def _damaged(path: Path, error: Exception) -> Fault:
    return Fault(f"{path} is damaged ({error}); delete it and run again")


def slug(text: str) -> str:
    """`text` as a file name of its own: readable, and with a digest where characters had to go."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")[:LONGEST_NAME]
    return readable if readable == text else f"{readable}-{zlib.crc32(text.encode()):08x}"
