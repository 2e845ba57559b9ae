"""A model's state as one flat vector, which is what federations send, mask, clip and average."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its vector: trainable parameters first, then floating buffers.

    Integer buffers (BatchNorm's step counters) stay out: they are no part of what is sent.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int

    @classmethod
    def of(cls, model: nn.Module) -> "Layout":
        """The layout of `model`."""
        parameters = list(model.named_parameters())
        tensors = parameters + list(_floating_buffers(model))
        return cls(
            names=tuple(name for name, _ in tensors),
            shapes=tuple(tuple(tensor.shape) for _, tensor in tensors),
            trainable=sum(tensor.numel() for _, tensor in parameters),
        )

    @property
    def size(self) -> int:
        """The vector's length."""
        return sum(map(math.prod, self.shapes))

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of `vector`, one for each tensor, in the tensor's own shape."""
        pieces = vector.split([math.prod(shape) for shape in self.shapes])
        return {name: piece.view(shape) for name, shape, piece in zip(self.names, self.shapes, pieces)}


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
    yield from model.parameters()
    yield from (buffer for _, buffer in _floating_buffers(model))


def _floating_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    persistent = model.state_dict().keys()
    named = (item for item in model.named_buffers() if item[0] in persistent)
    return ((name, buffer) for name, buffer in named if buffer.is_floating_point())
