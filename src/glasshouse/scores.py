"""What was said of each record, in one file beside the findings: `scores.npz`, without a pickle."""

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from glasshouse.errors import BadInput
from glasshouse.exhibits import Records
from glasshouse.store import checksum_of_file, write_bytes

SCORES = "scores.npz"

CHECKSUMS = "checksums.json"

INDEX = "index"
"""The array that says what each entry is about."""

LABELS = ("table", "cell", "strategy", "defence", "attack", "adversary")

ENTRY = "entry"
"""The column that leads from a row of a table to its row of the index."""

MOST = 2**27
"""Bytes of all tables together, uncompressed; what comes after that is left out, and the index says so."""


def write_scores(path: Path, records: Sequence[Records]) -> None:
    """Write the records of all attacks, a structured array for each table; the file is whole or not there.

    Where there are no records there is no file.
    """
    if not records:
        path.unlink(missing_ok=True)
        return
    kept = _that_fit(records)
    tables: dict[str, list[np.ndarray]] = {name: [] for name in dict.fromkeys(one.table for one in records)}
    for entry, one in enumerate(records):
        if kept[entry]:
            tables[one.table].append(_rows(entry, one))
    arrays = {name: _joined(parts) for name, parts in tables.items() if parts}
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **{INDEX: _index(records, kept)}, **arrays)
    write_bytes(path, file.getvalue())


def read_scores(path: Path) -> tuple[Records, ...]:
    """The inverse of `write_scores`; none where there is no file. What was left out is not among them.

    A file that does not fit the checksum that lies beside it is refused.
    """
    if not path.exists():
        return ()
    try:
        checksums = path.parent / CHECKSUMS
        listed = json.loads(checksums.read_text()).get(path.name) if checksums.exists() else None
        if listed is not None and checksum_of_file(path) != listed:
            raise ValueError(f"it does not fit {checksums}")
        with np.load(path, allow_pickle=False) as file:
            return tuple(_entries({name: file[name] for name in file.files}))
    except (AttributeError, OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(
            f"{path} cannot be read ({error}); run the audit or study again: it is made from what is kept"
        ) from error


def _that_fit(records: Sequence[Records]) -> list[bool]:
    """Which of them fit into the file, in order, each whole or not at all."""
    room, kept = MOST, []
    for one in records:
        size = sum(column.nbytes for column in one.columns.values()) + 4 * len(one)
        kept.append(size <= room)
        room -= size if kept[-1] else 0
    return kept


def _index(records: Sequence[Records], kept: Sequence[bool]) -> np.ndarray:
    """A row for each entry: what it is about, how many rows it has, and whether they are kept."""
    names = {label: [str(getattr(one, label) or "") for one in records] for label in LABELS}
    width = {label: max(1, *map(len, column)) for label, column in names.items()}
    kind = [
        *((label, f"<U{width[label]}") for label in LABELS),
        ("seed", "<i8"),
        ("rows", "<i8"),
        ("kept", "?"),
    ]
    seeds = [-1 if one.seed is None else one.seed for one in records]
    rows = zip(*(names[label] for label in LABELS), seeds, map(len, records), kept)
    return np.array(list(rows), dtype=kind)


def _rows(entry: int, records: Records) -> np.ndarray:
    columns = {ENTRY: np.full(len(records), entry, dtype="<i4"), **records.columns}
    rows = np.empty(len(records), dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    return rows


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of several attacks; their numbers may be of different types, of which the widest is taken."""
    names = parts[0].dtype.names or ()
    kind = [(name, np.result_type(*(part.dtype[name] for part in parts))) for name in names]
    return np.concatenate([part.astype(kind) for part in parts])


def _entries(arrays: dict[str, np.ndarray]) -> Iterator[Records]:
    for entry, labels in enumerate(arrays[INDEX]):
        if not labels["kept"]:
            continue
        table = arrays[str(labels["table"])]
        rows = table[table[ENTRY] == entry]
        about = {label: str(labels[label]) for label in LABELS}
        seed = int(labels["seed"])
        columns = {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names if name != ENTRY}
        yield Records(**about, seed=None if seed < 0 else seed, columns=columns)
