"""Products of vectors with the Hessian of a model's mean loss, as fast as a CPU gives them."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp

from glasshouse.data.images import Images
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.measures.curvature.subject import frozen_copy

CHUNK = 500
"""Images whose graph is built at once: enough to be fast, few enough to stay near the cache."""

KEPT_BYTES = 1 << 30
"""Memory up to which the graphs of the gradient are kept from one product to the next."""

Operator = Callable[[Tensor], Tensor]


class Hessian:
    """The Hessian of the mean cross-entropy over `images` in all P parameters, as an operator.

    Calling it with a vector of shape (P,) returns its product, shape (P,), float32. The model itself is left
    alone: its copy is in eval mode.
    """

    def __init__(self, model: nn.Module, images: Images) -> None:
        self._plain = frozen_copy(model, images)
        self._model = laid_out(deepcopy(self._plain)).eval()
        self._parameters = list(self._model.parameters())
        self._images = images
        self._chunk = CHUNK
        self._kept: list[Sequence[Tensor]] = []
        self._keeps: bool | None = None
        self.products = 0

    @property
    def size(self) -> int:
        """The number of parameters, P."""
        return sum(parameter.numel() for parameter in self._parameters)

    def __call__(self, vector: Tensor) -> Tensor:
        self.products += 1
        directions = self._shaped(vector)
        total = torch.zeros(self.size)
        for gradient in self._gradients():
            # A parameter that the loss does not use has a zero for a gradient, without a graph.
            used = [place for place, piece in enumerate(gradient) if piece.requires_grad]
            pieces = torch.autograd.grad(
                [gradient[place] for place in used],
                self._parameters,
                [directions[place] for place in used],
                retain_graph=bool(self._keeps),
                materialize_grads=True,
            )
            total += torch.cat([piece.reshape(-1) for piece in pieces])
        return total / len(self._images)

    def gradient(self) -> Tensor:
        """The gradient of the mean loss, shape (P,)."""
        total = torch.zeros(self.size)
        for gradient in self._gradients():
            total += torch.cat([piece.detach().reshape(-1) for piece in gradient])
        return total / len(self._images)

    def along(self, vector: Tensor) -> Tensor:
        """v' H_i v for the Hessian H_i of each image's own loss, shape (N,).

        The second derivative of each loss along v, by forward differentiation twice.
        """
        point = {name: parameter.detach() for name, parameter in self._plain.named_parameters()}
        direction = dict(zip(point, self._shaped(vector)))
        parts = []
        for x, y in self._chunks():

            def slope(at: dict[str, Tensor], x: Tensor = x, y: Tensor = y) -> Tensor:
                def values(inner: dict[str, Tensor]) -> Tensor:
                    return F.cross_entropy(functional_call(self._plain, inner, (x,)), y, reduction="none")

                tangent: Tensor = jvp(values, (at,), (direction,))[1]
                return tangent

            parts.append(jvp(slope, (point,), (direction,))[1])
        return torch.cat(parts).detach()

    def _gradients(self) -> Iterator[Sequence[Tensor]]:
        """The gradient of each chunk's summed loss, differentiable; built once if memory allows."""
        if self._kept:
            yield from self._kept
            return
        for x, y in self._chunks():
            held = 0

            def count(tensor: Tensor) -> Tensor:
                nonlocal held
                held += tensor.numel() * tensor.element_size()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                loss = F.cross_entropy(self._model(x), y, reduction="sum")
                gradient = torch.autograd.grad(
                    loss, self._parameters, create_graph=True, materialize_grads=True
                )
            if self._keeps is None:
                self._keeps = held * len(self._images) / len(x) <= KEPT_BYTES
            if self._keeps:
                self._kept.append(gradient)
            yield gradient

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in zip(self._images.x.split(self._chunk), self._images.y.split(self._chunk)):
            yield channels_last(x), y

    def _shaped(self, vector: Tensor) -> list[Tensor]:
        pieces = vector.to(torch.float32).split([parameter.numel() for parameter in self._parameters])
        return [piece.view(parameter.shape) for piece, parameter in zip(pieces, self._parameters)]
