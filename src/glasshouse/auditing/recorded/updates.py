"""The tensors of a record as vectors, each read from its file when it is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput, quoted
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.history import Observed
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.layout import Layout
from glasshouse.models.files import OtherContent, check_names, fitting, read_named
from glasshouse.recording.arrays import read_forms
from glasshouse.recording.reader import RecordedRound


@dataclass(frozen=True, eq=False)
class Expected:
    """What a file of a network has to hold: tensors like the `blanks`; the `others` it may hold, too."""

    layout: Layout
    blanks: tuple[Tensor, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, network: nn.Module) -> "Expected":
        """That of `network`."""
        layout, state = Layout.of(network), network.state_dict()
        blanks = tuple(state[name].new_zeros(()).expand(state[name].shape) for name in layout.names)
        return cls(layout, blanks, tuple(state.keys() - set(layout.names)))

    def check(self, path: Path) -> None:
        """Refuse a file of another network by its header, before its numbers take any memory."""
        forms = read_forms(path)
        check_names(path, forms, self.layout.names, self.others)
        for name, shape in zip(self.layout.names, self.layout.shapes):
            if forms[name].shape != shape:
                raise OtherContent(
                    f"weights {path}: {name} has shape {forms[name].shape}, in the model {shape}; give the "
                    "model, image shape and number of classes that they were saved from"
                )

    def vector(self, path: Path) -> Tensor:
        """The tensors in a file, shape (P,); refuses others than the network's, and NaN."""
        saved = read_named(path)
        check_names(path, saved, self.layout.names, self.others)
        pieces = [
            fitting(path, name, saved[name], blank, sound=True)
            for name, blank in zip(self.layout.names, self.blanks)
        ]
        return torch.cat([piece.reshape(-1) for piece in pieces])


class RecordedUpdate(Update):
    """An update that lies in a record, and is read whenever it is asked for."""

    def __init__(
        self, client: int, samples: int, file: Path, expected: Expected, sent: Tensor | None
    ) -> None:
        values = {"client": client, "samples": samples, "file": file, "expected": expected, "sent": sent}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    file: Path
    expected: Expected
    sent: Tensor | None
    """What is to be subtracted, where the file holds weights and not their change."""

    @property
    def delta(self) -> Tensor:
        held = self.expected.vector(self.file)
        return held if self.sent is None else held - self.sent

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedUpdate, (self.client, self.samples, self.file, self.expected, self.sent)


def observed(one: RecordedRound, expected: Expected, numbers: dict[str, int]) -> Observed:
    """A recorded round as the server saw it; clients go by their `numbers`.

    Reads every update once, so that one that cannot be used is refused here.
    """
    sent = _named(one, "the model sent", expected, one.sent)
    less = sent if one.kind == "after" else None
    updates = tuple(
        RecordedUpdate(numbers[client.name], client.samples, client.file, expected, less)
        for client in one.clients
        if client.file is not None
    )
    for client in one.clients:
        if client.file is not None:
            unused = "; if the server did not use it, take it out of round.json"
            _named(one, f"client {quoted(client.name)}", expected, client.file, unused)
    clients = tuple(numbers[client.name] for client in one.clients)
    if one.sum is None:
        delivery = Plain().deliver(updates, 0)
    else:
        mean = _named(one, "the sum", expected, one.sum)
        delivery = Delivery(
            mean if less is None else mean - less, one.samples, clients, updates if updates else None
        )
    sizes = {numbers[client.name]: client.samples for client in one.clients}
    return Observed(one.number - 1, sent, delivery, sizes=sizes)


def _named(one: RecordedRound, who: str, expected: Expected, path: Path, remedy: str = "") -> Tensor:
    try:
        return expected.vector(path)
    except BadInput as error:
        raise BadInput(f"round {one.number}, {who}: {error}{remedy}") from error
