"""Hessian-vector products of any network, by differentiating its gradient."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp


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

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = F.cross_entropy(model(x), y, reduction="sum")
            self._gradient = torch.autograd.grad(
                loss, self._parameters, create_graph=True, materialize_grads=True
            )

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
        """The second derivative of each image's loss along `directions`, shape (N,), forwards twice."""
        point = {name: parameter.detach() for name, parameter in self._model.named_parameters()}
        direction = dict(zip(point, directions))

        def values(at: dict[str, Tensor]) -> Tensor:
            return F.cross_entropy(functional_call(self._model, at, (self._x,)), self._y, reduction="none")

        def slopes(at: dict[str, Tensor]) -> Tensor:
            tangent: Tensor = jvp(values, (at,), (direction,))[1]
            return tangent

        second: Tensor = jvp(slopes, (point,), (direction,))[1]
        return second.detach()
