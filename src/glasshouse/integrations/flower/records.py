"""Flower's records as tensors and vectors, and what a message says of itself."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glasshouse.errors import BadInput, one_line, quoted
from glasshouse.integrations.flower.framework import (
    Array,
    ArrayRecord,
    Context,
    Error,
    ErrorCode,
    Message,
    MessageType,
)
from glasshouse.integrations.flower.replies import arrays_in, weight_in
from glasshouse.learning.layout import Layout

logger = logging.getLogger("flwr")

STATISTICS = ("running_mean", "running_var")
"""What torch calls the statistics of a batch norm, which are no weights, in a state_dict."""

ROUND = "server-round"
"""The setting in which Flower's strategies tell the number of a round."""

OWN = "glasshouse."
"""How the names of the records begin that strategies of Glasshouse send beside the model."""

LONGEST_REASON = 1000


@dataclass(frozen=True, eq=False)
class State:
    """The arrays of a model: its floats as one vector in the order of `layout`, and all arrays by name."""

    layout: Layout
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, record: ArrayRecord, parameters: frozenset[str] | None = None) -> "State":
        """The state in `record`; weights come first in its vector.

        They are the floats named in `parameters`, or else all that are no statistics.
        """
        arrays = arrays_in(record)
        floats = [name for name, array in arrays.items() if np.issubdtype(array.dtype, np.floating)]
        trained = [name for name in floats if _is_weight(name, parameters)]
        names = [*trained, *(name for name in floats if name not in set(trained))]
        return cls(
            Layout(
                tuple(names),
                tuple(arrays[name].shape for name in names),
                sum(arrays[name].size for name in trained),
            ),
            arrays,
        )

    @property
    def vector(self) -> Tensor:
        """The floats, shape (P,), in double precision where one of them is, else in single."""
        if not self.layout.names:
            return torch.empty(0)
        pieces = [torch.from_numpy(self.arrays[name].reshape(-1).copy()) for name in self.layout.names]
        double = any(piece.dtype == torch.float64 for piece in pieces)
        return torch.cat([piece.to(torch.float64 if double else torch.float32) for piece in pieces])

    def check_like(self, sent: "State") -> None:
        """Refuse arrays that are not those that were sent, changed."""
        shapes = dict(zip(sent.layout.names, sent.layout.shapes))
        own = dict(zip(self.layout.names, self.layout.shapes))
        for name in [*shapes, *own]:
            if shapes.get(name) != own.get(name):
                raise BadInput(
                    f"array {name!r} has the shape {own.get(name)} in the reply, {shapes.get(name)} in the "
                    "message; send back the arrays that were received, under their names"
                )

    def with_vector(self, vector: Tensor) -> ArrayRecord:
        """The same arrays, in their order and of their types, whose floats are those of `vector`."""
        named = self.layout.named(vector)
        return ArrayRecord(
            {
                name: Array(named[name].numpy().astype(array.dtype) if name in named else array)
                for name, array in self.arrays.items()
            }
        )


def _is_weight(name: str, parameters: frozenset[str] | None) -> bool:
    return not name.endswith(STATISTICS) if parameters is None else name in parameters


def only_record(content: Any, key: str | None) -> tuple[str, ArrayRecord]:
    """The model in a message, with the name of its record: that called `key`, or the only one of arrays.

    Those by which strategies of Glasshouse tell more than the model are not counted.
    """
    records = {name: record for name, record in content.array_records.items() if not name.startswith(OWN)}
    if key is None and len(records) == 1:
        return next(iter(records.items()))
    if key is None or key not in records:
        raise BadInput(
            f"the message holds {len(records)} records of arrays ({', '.join(records) or 'none'}); "
            "name that of the model in `arrays`"
        )
    return key, records[key]


def tensors_of(record: ArrayRecord) -> dict[str, Tensor]:
    """The arrays of a record as tensors."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays_in(record).items()}


def record_of(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """A record of `tensors`."""
    return ArrayRecord({name: Array(tensor.detach().numpy()) for name, tensor in tensors.items()})


def vector_of(record: ArrayRecord, layout: Layout) -> Tensor:
    """The tensors of `layout` in `record` as one vector, shape (P,)."""
    named = tensors_of(ArrayRecord({name: record[name] for name in layout.names if name in record}))
    for name, shape in zip(layout.names, layout.shapes):
        if name not in named or tuple(named[name].shape) != shape:
            found = tuple(named[name].shape) if name in named else "missing"
            raise BadInput(f"array {name!r} is {found}, and the model's has the shape {shape}; send that")
        if named[name].dtype != torch.float32:
            raise BadInput(f"array {name!r} is {named[name].dtype}; send torch.float32")
    return torch.cat([named[name].reshape(-1) for name in layout.names])


def trains(message: Message) -> bool:
    """Whether a message asks for training."""
    return str(message.metadata.message_type).split(".")[0] == str(MessageType.TRAIN)


def round_of(message: Message) -> int:
    """The number of the message's round, counted from 0; 0 where it does not say."""
    for config in message.content.config_records.values():
        if isinstance(number := config.get(ROUND), int):
            return max(0, number - 1)
    group = message.metadata.group_id
    return max(0, int(group) - 1) if group.isdecimal() else 0


def number_of(context: Context) -> int:
    """The number of a client: that of its partition, or of its node."""
    partition = context.node_config.get("partition-id")
    return int(context.node_id if partition is None else partition)


def samples_in(content: Any, key: str) -> int:
    """How many samples a client says it trained on."""
    weight = weight_in(content, key)
    if isinstance(weight, list) or not math.isfinite(weight) or weight != int(weight) or weight < 0:
        raise BadInput(f"its metric {key!r} is {quoted(weight)}; send a whole number from 0")
    return int(weight)


def refusal(message: Message, reason: str) -> Message:
    """A reply by which a client does not do what it was asked, and says why."""
    error = Error(ErrorCode.MOD_FAILED_PRECONDITION, one_line(reason, LONGEST_REASON))
    return Message(error, reply_to=message)
