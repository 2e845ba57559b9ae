"""The Hessian of a model's mean loss as an operator, as fast as a CPU gives its products."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import laid_out
from glasshouse.measures.curvature.graph import GraphChunk
from glasshouse.measures.curvature.layers import LayeredChunk, leaves, plain
from glasshouse.measures.curvature.subject import frozen_copy

CHUNK = 250
"""Images that are taken at once: enough to be fast, few enough to stay near the cache."""

KEPT_BYTES = 1 << 30
"""Memory up to which what a product does not change is kept from one to the next."""

OVERFLOW = "curvature: derivatives of the loss are not finite; the training diverged: lower its lr"

Operator = Callable[[Tensor], Tensor]
Chunk = LayeredChunk | GraphChunk


class Hessian:
    """The Hessian of the mean cross-entropy over `images` in all P parameters, as an operator.

    Calling it with a vector of shape (P,) returns its product, shape (P,), float32. The model is not
    changed: its copy is in eval mode.
    """

    def __init__(self, model: nn.Module, images: Images) -> None:
        copy = frozen_copy(model, images)
        self._shapes = [parameter.shape for parameter in copy.parameters()]
        self._images = images
        self._take: Callable[[Tensor, Tensor], Chunk]
        if plain(copy):
            self._take = partial(LayeredChunk, list(leaves(laid_out(copy))))
        else:
            self._take = partial(GraphChunk, copy.to(memory_format=torch.channels_last))  # type: ignore[call-overload]
        self._kept: list[Chunk] = []
        self.size = sum(shape.numel() for shape in self._shapes)
        """The number of parameters, P."""

    def __call__(self, vector: Tensor) -> Tensor:
        directions = self._shaped(vector)
        return self._mean(chunk.product(directions) for chunk in self._chunks())

    def gradient(self) -> Tensor:
        """The gradient of the mean loss, shape (P,)."""
        return self._mean(chunk.gradient() for chunk in self._chunks())

    def along(self, vector: Tensor) -> Tensor:
        """v' H_i v for the Hessian H_i of each image's own loss, shape (N,)."""
        directions = self._shaped(vector)
        return torch.cat([chunk.along(directions) for chunk in self._chunks()])

    def _chunks(self) -> Iterator[Chunk]:
        if self._kept:
            yield from self._kept
            return
        kept = []
        for x, y in zip(self._images.x.split(CHUNK), self._images.y.split(CHUNK)):
            chunk = self._take(_channels_last(x), y)
            if chunk.held * len(self._images) <= KEPT_BYTES * len(x):
                kept.append(chunk)
            yield chunk
        if len(kept) * CHUNK >= len(self._images):
            self._kept = kept

    def _mean(self, parts: Iterator[list[Tensor]]) -> Tensor:
        total = torch.zeros(self.size)
        for pieces in parts:
            total += torch.cat([piece.reshape(-1) for piece in pieces])
        if not total.isfinite().all():
            raise BadInput(OVERFLOW)
        return total / len(self._images)

    def _shaped(self, vector: Tensor) -> list[Tensor]:
        pieces = vector.split([shape.numel() for shape in self._shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self._shapes)]


def _channels_last(x: Tensor) -> Tensor:
    """`x` in channels-last order by its strides too: those of grey images would leave the order open.

    A convolution of theirs would then answer in the other order, and every later one would turn it round.
    """
    return torch.empty(x.shape, memory_format=torch.channels_last).copy_(x)
