"""A model's state as one flat vector, which is what federations send, mask, clip and average."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.errors import CannotRun
from glasshouse.models.freezing import exchanged, frozen_names


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its vector: trainable parameters first, then floating buffers.

    Integer buffers (BatchNorm's step counters) stay out: they are no part of what is sent. Neither are the
    `frozen` tensors, which belong to the network that everybody has.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int
    frozen: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: nn.Module) -> "Layout":
        """The layout of `model`."""
        parameters = list(exchanged(model).items())
        tensors = parameters + list(_floating_buffers(model))
        return cls(
            names=tuple(name for name, _ in tensors),
            shapes=tuple(tuple(tensor.shape) for _, tensor in tensors),
            trainable=sum(tensor.numel() for _, tensor in parameters),
            frozen=tuple(frozen_names(model)),
        )

    @property
    def size(self) -> int:
        """The vector's length."""
        return sum(map(math.prod, self.shapes))

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of `vector`, one for each tensor, in the tensor's own shape.

        To ask for a frozen tensor, which is not sent, raises `CannotRun`.
        """
        pieces = vector.split([math.prod(shape) for shape in self.shapes])
        named = zip(self.names, self.shapes, pieces)
        return _Sent(self, {name: piece.view(shape) for name, shape, piece in named})

    def check_sent(self, *names: str) -> None:
        """Raise `CannotRun` where one of the tensors is frozen."""
        for name in names:
            if name in self.frozen:
                raise CannotRun(f"{name} is frozen: clients train and send {self.sent} alone")

    @property
    def sent(self) -> str:
        """What is sent, in words.

        >>> Layout(("9.weight", "9.bias"), ((2, 3), (2,)), 8).sent
        '9.weight, 9.bias (8 numbers)'
        """
        more = f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        return f"{', '.join(self.names[:3])}{more} ({self.size:,} numbers)"


class _Sent(dict[str, Tensor]):
    """The tensors of a vector by name; those that are no part of it because they are frozen say so."""

    def __init__(self, layout: Layout, named: dict[str, Tensor]) -> None:
        super().__init__(named)
        self._layout = layout

    def __missing__(self, name: str) -> Tensor:
        self._layout.check_sent(name)
        raise KeyError(name)


def read_vector(model: nn.Module) -> Tensor:
    """A copy of the model's state, shape (P,)."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in _tensors(model)])


@torch.no_grad()
def write_vector(model: nn.Module, vector: Tensor) -> None:
    """Load `vector`, shape (P,), into `model`."""
    tensors = list(_tensors(model))
    for tensor, piece in zip(tensors, vector.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(piece.view(tensor.shape))


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from exchanged(model).values()
    yield from (buffer for _, buffer in _floating_buffers(model))


def _floating_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    persistent = model.state_dict().keys() - set(frozen_names(model))
    named = (item for item in model.named_buffers() if item[0] in persistent)
    return ((name, buffer) for name, buffer in named if buffer.is_floating_point())
