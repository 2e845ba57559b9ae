"""Hessian-vector products of any network, by differentiating its gradient."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.measures.curvature.subject import differentiable

TOGETHER = 50
"""Images whose second derivatives are taken at once: each needs as much memory again as its product."""


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


def _slope(value: Tensor, parameters: Sequence[Tensor], directions: Sequence[Tensor]) -> Tensor:
    """The derivative of the scalar `value` along `directions`, a scalar that can be differentiated again."""
    gradient = torch.autograd.grad(value, parameters, create_graph=True, materialize_grads=True)
    return torch.stack([(piece * v).sum() for piece, v in zip(gradient, directions)]).sum()
