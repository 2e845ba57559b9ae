"""The Hessian of a model's mean loss as an operator, as fast as a CPU gives its products."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.measures.curvature.layers import LayeredChunk, leaves, plain

CHUNK = 250
"""Images that are taken at once: enough to be fast, few enough to stay near the cache."""

KEPT_BYTES = 1 << 30
"""Memory up to which what a product does not change is kept from one to the next."""

TOGETHER = 50
"""Images whose second derivatives are taken at once: each needs as much memory again as its product."""

OVERFLOW = "curvature: derivatives of the loss are not finite; the training diverged: lower its lr"

Operator = Callable[[Tensor], Tensor]


class GraphChunk:
    """The summed loss of some images around one state of a network, ready for products with vectors.

    The gradient's graph is built once and differentiated for each product. `x` has shape (N, C, H, W), `y`
    shape (N,); directions and products have the order of the model's parameters.
    """

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        self._model, self._x, self._y = model, x, y
        self._parameters = list(model.parameters())
        self.held = 0
        """The bytes that the graph keeps, about."""

        def count(tensor: Tensor) -> Tensor:
            self.held += tensor.numel() * tensor.element_size()
            return tensor

        with differentiable(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = F.cross_entropy(model(x), y, reduction="sum")
            self._gradient = _gradient(loss, self._parameters)

    def gradient(self) -> list[Tensor]:
        """The derivative of the summed loss by each parameter."""
        return [piece.detach() for piece in self._gradient]

    def product(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """The Hessian of the summed loss times `directions`, one tensor for each parameter."""
        # A parameter that the loss does not use has a zero for a gradient, without a graph.
        used = [place for place, piece in enumerate(self._gradient) if piece.requires_grad]
        return list(
            torch.autograd.grad(
                [self._gradient[place] for place in used],
                self._parameters,
                [directions[place] for place in used],
                retain_graph=True,
                materialize_grads=True,
            )
        )

    def along(self, directions: Sequence[Tensor]) -> Tensor:
        """The second derivative of each image's loss along `directions`, shape (N,)."""
        parts = zip(self._x.split(TOGETHER), self._y.split(TOGETHER))
        return torch.cat([self._second(x, y, directions) for x, y in parts])

    def _second(self, x: Tensor, y: Tensor, directions: Sequence[Tensor]) -> Tensor:
        """v' H_i v of each image i, by three backward passes.

        With image i's loss weighted by u_i, v' H(u) v = sum_i u_i v' H_i v: differentiate that by u.
        """
        # torch's forward mode would be shorter, but is wrong through layer and instance norm (2.13).
        with differentiable():
            weights = torch.ones(len(y), requires_grad=True)
            loss = weights @ F.cross_entropy(self._model(x), y, reduction="none")
            curvature = _slope(_slope(loss, self._parameters, directions), self._parameters, directions)
            (second,) = torch.autograd.grad(curvature, weights)
        return second


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


def _slope(value: Tensor, parameters: Sequence[Tensor], directions: Sequence[Tensor]) -> Tensor:
    """The derivative of the scalar `value` along `directions`, a scalar that can be differentiated again."""
    gradient = _gradient(value, parameters)
    return torch.stack([(piece * v).sum() for piece, v in zip(gradient, directions)]).sum()


def _gradient(value: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, parameters, create_graph=True, materialize_grads=True)


def frozen_copy(model: nn.Module, images: Images) -> nn.Module:
    """A copy of `model` in eval mode and float32, whose parameters ask for gradients, all of them.

    Dropout is off and batch norm uses its running statistics. Frozen parameters count: whether they
    are trained says nothing about how curved the loss is.
    """
    if not len(images):
        raise BadInput("curvature: no images; give at least one")
    copy = deepcopy(model).float().eval()
    parameters = list(copy.parameters())
    if not parameters:
        raise BadInput("curvature: the model has no parameters; give one that has")
    for name, parameter in copy.named_parameters():
        if not parameter.isfinite().all():
            raise BadInput(
                f"curvature: parameter {name!r} is not finite; the training diverged: lower its lr"
            )
        parameter.requires_grad_(True).grad = None
    assert not any(module.training for module in copy.modules())
    _check_answer(copy, images)
    return copy


@contextmanager
def differentiable() -> Iterator[None]:
    """Where answers can be differentiated more than once: torch's fused attention cannot, on a CPU."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        yield


def _check_answer(model: nn.Module, images: Images) -> None:
    with torch.enable_grad():
        logits = model(channels_last(images.x[:1]))
    highest = int(images.y.max())
    if logits.ndim != 2 or logits.shape[1] <= highest:
        raise BadInput(
            f"curvature: the model answers an image with shape {tuple(logits.shape)}, but labels go up to "
            f"{highest}; give a model with a logit for each class"
        )
    if not logits.isfinite().all():
        raise BadInput("curvature: the model's answers are not finite; give a model that works")
    check_gradient(logits, "parameters")


def check_gradient(answers: Tensor, inputs: str) -> None:
    """Refuse `answers` that cannot be differentiated by the `inputs`."""
    if not answers.requires_grad:
        raise BadInput(
            f"curvature: the model's answers have no gradient in its {inputs}; "
            "give a model that neither detaches tensors nor turns gradients off"
        )
