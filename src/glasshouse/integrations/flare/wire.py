"""The messages of secure aggregation as FLARE carries them: numbers, bytes, arrays, lists and tables."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from glasshouse.errors import BadInput, quoted
from glasshouse.federation.secagg.messages import Keys, Masked, Request, Revealed, Sealed, Shared, Terms
from glasshouse.federation.secagg.ring import Ring

MESSAGES = {kind.__name__: kind for kind in (Keys, Masked, Request, Revealed, Ring, Sealed, Shared, Terms)}
ANSWERS: dict[type, dict[str, type]] = {
    Keys: {"sealing": bytes, "masking": bytes},
    Shared: {"sealed": bytes, "commitments": bytes, "seed": bytes},
    Masked: {"words": np.ndarray},
    Revealed: {"seeds": dict, "keys": dict},
}
"""What the fields of a client's answers hold, beside its own number."""

_KIND, _PAIRS = "message", "pairs"

Answer = TypeVar("Answer", Keys, Shared, Masked, Revealed)


def packed(message: Any) -> Any:
    """What FLARE can carry of a message, or of a sequence of messages."""
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        fields = {one.name: packed(getattr(message, one.name)) for one in dataclasses.fields(message)}
        return {_KIND: type(message).__name__, **fields}
    if isinstance(message, Mapping):
        return {_PAIRS: [[packed(key), packed(value)] for key, value in message.items()]}
    if isinstance(message, list | tuple):
        return [packed(part) for part in message]
    return message


def unpacked(received: Any) -> Any:
    """The message that was packed; sequences are tuples."""
    if isinstance(received, list | tuple):
        return tuple(unpacked(part) for part in received)
    if not isinstance(received, Mapping):
        return received
    if _PAIRS in received:
        return {unpacked(key): unpacked(value) for key, value in received[_PAIRS]}
    kind = MESSAGES.get(received.get(_KIND, ""))
    if kind is None:
        raise BadInput(f"{quoted(dict(received))} is no message of secure aggregation")
    fields = {name: unpacked(value) for name, value in received.items() if name != _KIND}
    if fields.keys() != {one.name for one in dataclasses.fields(kind)}:
        raise BadInput(f"a message {kind.__name__} has other fields: {quoted(sorted(fields))}")
    return kind(**fields)


def answer_of(client: int, kind: type[Answer], received: Any) -> Answer:
    """The answer that `client` was asked for; it speaks for nobody else, whatever number it gives itself."""
    answer = unpacked(received)
    if not isinstance(answer, kind):
        raise TypeError(f"{type(answer).__name__} in the place of {kind.__name__}")
    for field, holds in ANSWERS[kind].items():
        value = getattr(answer, field)
        if not isinstance(value, holds):
            raise TypeError(f"{type(value).__name__} in the place of {holds.__name__} in {kind.__name__}")
    return dataclasses.replace(answer, client=client)
