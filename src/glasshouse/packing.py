"""Columns of numbers inside JSON: exact, compressed, and no pickle."""

import base64
import binascii
import zlib
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

KINDS = "biuf"
"""The kinds of numbers a column may hold, as numpy calls them: truth values, whole numbers and floats."""

LARGEST = 2**28
"""Bytes of a column that is read."""


def packed(column: np.ndarray) -> str:
    """A column, shape (N,), as its type and its compressed bytes."""
    assert column.ndim == 1
    assert column.dtype.kind in KINDS
    return f"{column.dtype.str} {base64.b64encode(zlib.compress(column.tobytes(), 6)).decode()}"


def unpacked(value: Any) -> np.ndarray:
    """The inverse of `packed`; an array is taken as it is.

    >>> unpacked(packed(np.array([0.1, 0.2]))).tolist()
    [0.1, 0.2]
    """
    if isinstance(value, np.ndarray):
        return value
    kind, _, text = str(value).partition(" ")
    try:
        dtype = np.dtype(kind)
        inflating = zlib.decompressobj()
        content = inflating.decompress(base64.b64decode(text, validate=True), LARGEST)
        if dtype.kind not in KINDS or not inflating.eof:
            raise ValueError("of another type, or cut short, or too long")
        return np.frombuffer(content, dtype)
    except (TypeError, ValueError, SyntaxError, binascii.Error, zlib.error) as error:
        raise ValueError(f"no column of numbers ({error})") from error


Column = Annotated[np.ndarray, PlainValidator(unpacked), PlainSerializer(packed)]
