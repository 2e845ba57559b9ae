"""What a file of torch holds beside tensors: code that an ordinary load would run. Nothing of it is run."""

import io
import pickletools
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import torch

MOST_BYTES = 1 << 24
"""As much of a pickle is looked through; those of weights are far smaller."""

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What zipfile raises over an archive that is broken, encrypted, or packed in a way it does not know."""

PARTS = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_\w+|torch\._tensor _rebuild_from_type_v2"
    r"|torch\.storage \w+Storage|torch\.serialization _get_layout"
)
"""What tensors are put together with, beside the types in torch itself."""


def code_in(path: Path) -> str | None:
    """What `path`, which torch refuses to load as weights, would run if it were loaded as a pickle; or null.

    A damaged file of weights names nothing but what tensors are made of.
    """
    if tarfile.is_tarfile(path):
        return "an archive in the form of 2016, and loading it could run code"
    found = sorted({name for content in _pickles(path) for name in _names(content) if not _harmless(name)})
    return f"more than tensors, and loading them could run code: {', '.join(found[:3])}" if found else None


def is_packed(path: Path) -> bool:
    """Whether `path` is an archive that unpacks to more than it takes: torch packs nothing."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return sum(record.file_size for record in archive.infolist()) > path.stat().st_size


def _pickles(path: Path) -> Iterator[bytes]:
    """The pickles of the archive, or the file itself, as far as they are looked through."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            yield file.read(MOST_BYTES)
        return
    try:
        archive = zipfile.ZipFile(path)
    except DAMAGED:  # torch has no list of its records either
        return
    with archive:
        for record in archive.infolist():
            if record.filename.endswith(".pkl"):
                try:
                    with archive.open(record) as file:
                        yield file.read(MOST_BYTES)
                except DAMAGED:  # torch cannot unpack it either
                    continue


def _names(content: bytes) -> Iterator[str]:
    """The names of Python objects, `module name`, that pickles one after another refer to."""
    stream, texts = io.BytesIO(content), [""]
    while stream.tell() < len(content):
        try:
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name in ("GLOBAL", "INST"):
                    yield str(argument)
                elif opcode.name == "STACK_GLOBAL":
                    yield " ".join(texts[-2:])
                elif isinstance(argument, str):
                    texts.append(argument)
        except ValueError:  # what follows is no pickle
            return


def _harmless(name: str) -> bool:
    """Whether `module name` is something that tensors are put together with."""
    module, _, attribute = name.partition(" ")
    if module == "torch":
        return isinstance(getattr(torch, attribute, None), torch.dtype | type)
    return PARTS.fullmatch(name) is not None
