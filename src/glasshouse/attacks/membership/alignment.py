"""Whether an update points where a record's gradient does: what a client trained on, it moved towards.

Along an update d the logits of a record change by J d, to first order, and its loss falls by -(p - y) . J d,
where p are the predicted probabilities and y is one-hot: this is the product of the update with minus the
record's gradient. Divided by the length of d and by that of the error p - y it is called the alignment here.
The error stands for the length of the gradient: it takes that much of how badly the record is predicted out
of the product, and unlike the other it is known from a forward pass.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from glasshouse.access import Protocol
from glasshouse.attacks.labels.head import Head, last_linear
from glasshouse.attacks.membership.readings import Reader, Records, ServerMembership
from glasshouse.errors import CannotRun, fault_of
from glasshouse.learning.evaluate import CHUNK
from glasshouse.models.freezing import exchanged
from glasshouse.options import check_choice

TINY = 1e-12

Changes = tuple[Tensor, Tensor]
"""Logits, shape (N, classes), and their change along each of D directions, shape (D, N, classes)."""


@dataclass(frozen=True, kw_only=True)
class GradientAlignment(ServerMembership):
    """Finds records whose gradient at the model sent points along an update.

    A client's claim is the alignment with its own update, summed over rounds; to the strongest it adds the
    alignment with the mean update, which is all that a server has who sees only sums. `layers` is "all" for
    the gradient by every parameter, or "head" for that by the last linear layer alone, which takes one
    forward pass for all clients and says less. Both are measured against auxiliary records of the same class.
    The threshold accuses a share `quantile` of the auxiliary records.
    """

    name = "gradient-alignment"
    layers: Literal["all", "head"] = "all"
    quantile: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "layers", self.layers, ("all", "head"))

    def reader(self, protocol: Protocol, records: Records) -> Reader:
        head = last_linear(protocol) if self.layers == "head" else None
        return lambda sent, updates: alignments(
            protocol, sent, torch.stack(list(updates)), records.x, records.y, head
        )


def alignments(
    protocol: Protocol, sent: Tensor, directions: Tensor, x: Tensor, y: Tensor, head: Head | None = None
) -> np.ndarray:
    """The alignment of each record with each of `directions`, shape (D, P), as an array of shape (D, N).

    With `head` only its entries of directions and gradients count, else all trainable ones.
    """
    network = deepcopy(protocol.architecture).eval()
    if head is None:
        along = _along_all(network, protocol, sent, directions)
        lengths = directions[:, : protocol.layout.trainable].norm(dim=1)
    else:
        along = _along_head(network, protocol, sent, directions, head)
        pieces = [protocol.layout.named(direction) for direction in directions]
        lengths = torch.stack([torch.hypot(p[head.weight].norm(), p[head.bias].norm()) for p in pieces])
    parts = [_falls(*along(images), labels) for images, labels in zip(x.split(CHUNK), y.split(CHUNK))]
    aligned: np.ndarray = (torch.cat(parts, dim=1) / lengths.double().clamp_min(TINY)[:, None]).numpy()
    return aligned


def _falls(logits: Tensor, changes: Tensor, y: Tensor) -> Tensor:
    """How fast the loss falls for each unit of error, double of shape (D, N)."""
    error = logits.double().softmax(1)
    error[torch.arange(len(y)), y] -= 1
    falls: Tensor = -(changes.double() * error).sum(2) / error.norm(dim=1).clamp_min(TINY)
    return falls


def _along_all(
    network: nn.Module, protocol: Protocol, sent: Tensor, directions: Tensor
) -> Callable[[Tensor], Changes]:
    """Changes along directions in all trainable parameters, by forward differentiation."""
    layout = protocol.layout
    trainable = list(exchanged(network))
    state = layout.named(sent)
    tangents = [{name: layout.named(d)[name] for name in trainable} for d in directions]

    def along(x: Tensor) -> Changes:
        def logits_at(parameters: dict[str, Tensor]) -> Tensor:
            logits: Tensor = functional_call(network, state | parameters, (x,))
            return logits

        start = {name: state[name] for name in trainable}
        try:
            pairs: list[Any] = [jvp(logits_at, (start,), (tangent,)) for tangent in tangents]
        except (NotImplementedError, RuntimeError) as error:
            if fault := fault_of(error):
                raise fault from error
            raise CannotRun('the network has no forward derivative; try layers="head"') from error
        return pairs[0][0].detach(), torch.stack([change.detach() for _, change in pairs])

    return along


def _along_head(
    network: nn.Module, protocol: Protocol, sent: Tensor, directions: Tensor, head: Head
) -> Callable[[Tensor], Changes]:
    """Changes along directions in the last linear layer, in closed form from its inputs."""
    state = protocol.layout.named(sent)
    pieces = [protocol.layout.named(direction) for direction in directions]
    inputs: list[Tensor] = []
    layer = network.get_submodule(head.weight.rpartition(".")[0])
    layer.register_forward_hook(lambda _, received, __: inputs.append(received[0]))

    @torch.no_grad()
    def along(x: Tensor) -> Changes:
        inputs.clear()
        logits = functional_call(network, state, (x,))
        return logits, torch.stack([inputs[0] @ p[head.weight].T + p[head.bias] for p in pieces])

    return along
