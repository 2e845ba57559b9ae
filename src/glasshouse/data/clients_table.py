"""Read `clients.csv`: which client holds which picture of a folder, and perhaps of which part it is."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glasshouse.data.ids import checked_ids, checked_parts
from glasshouse.errors import BadInput, quoted
from glasshouse.reading import read_file

NAME = "clients.csv"
LONGEST = 2**30
"""Bytes of a table."""

Row = tuple[int, str, str]
"""The line it stands in, the client and the part."""


def read_clients(
    folder: Path, train: Sequence[Path], test: Sequence[Path]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The client and the part of each of the pictures `train`, both of shape (N,), as far as a table says.

    The table lies in the folder or beside it, and names files as seen from itself or from the folder. It may
    name the test pictures, too, which no client holds.
    """
    table = next((path for path in (folder / NAME, folder.absolute().parent / NAME) if path.exists()), None)
    if table is None:
        return None, None
    rows = _rows(table, folder, {*map(_place, train), *map(_place, test)})
    missing = [file for file in train if _place(file) not in rows]
    if missing:
        raise BadInput(
            f"{table}: no row for {missing[0]}{_more(missing)}; give every training picture one, or "
            f"remove {table.name}"
        )
    listed = [rows[_place(file)] for file in train]
    for line, client, _ in listed:
        if not client:
            raise BadInput(f"{table}: line {line} names no client; write the client that holds the picture")
    clients = checked_ids(np.array([client for _, client, _ in listed]), len(train), "client", str(table))
    parts = [part for _, _, part in listed]
    if not any(parts):
        return clients, None
    for line, _, part in listed:
        if not part:
            raise BadInput(f"{table}: line {line} names no part; name one for every picture, or for none")
    return clients, checked_parts(np.array(parts), len(train), str(table))


def _rows(table: Path, folder: Path, pictures: set[str]) -> dict[str, Row]:
    """The table's rows by the places of the pictures that they name."""
    rows: dict[str, Row] = {}
    try:
        text = read_file(table, LONGEST).decode("utf-8-sig")
        reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
        columns = [(name or "").strip() for name in reader.fieldnames or ()]
        reader.fieldnames = columns
        lacking = [name for name in ("file", "client") if name not in columns]
        if lacking:
            raise BadInput(
                f"{table}: no column {lacking[0]!r}; its first line is to be file,client or "
                "file,client,part, with commas"
            )
        for row in reader:
            named, client, part = ((row.get(key) or "").strip() for key in ("file", "client", "part"))
            places = (_place(table.parent / named), _place(folder / named))
            place = next((place for place in places if place in pictures), None)
            if place is None:
                raise BadInput(
                    f"{table}: line {reader.line_num} names {quoted(named)}, which is no picture of "
                    f"{folder}; write it as seen from there, like CLASS/picture.png"
                )
            if place in rows:
                raise BadInput(
                    f"{table}: line {reader.line_num} names {quoted(named)} again; give a picture one row"
                )
            rows[place] = (reader.line_num, client, part)
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"{table}: not a table ({error}); save it as CSV in UTF-8") from error
    return rows


def _place(path: Path) -> str:
    """A path by which the same file is known, however it is written."""
    return os.path.normpath(path.absolute())


def _more(files: Sequence[Path]) -> str:
    return f" and {len(files) - 1} more" if len(files) > 1 else ""
