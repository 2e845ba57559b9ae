"""The gradient of every sample of a batch by itself, tensor by tensor, from one backward pass.

The backward pass of the summed loss gives, for all samples at once, the derivative by the output of each
layer; with the layer's input that makes each sample's gradient by its tensors (`sample_layers`). Layers that
are used several times, and tensors that several layers share, add up their uses. Tensors of other modules, as
the positions of a transformer, go through `torch.func`, one sample at a time where that cannot follow.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap

from glasshouse.errors import BadInput
from glasshouse.learning.sample_layers import derivative, known

SampleLoss = Callable[[Tensor, Tensor], Tensor]
"""The loss of each sample, shape (N,), from what the network answers, (N, ...), and the labels, (N,)."""

Named = tuple[str, Tensor]
"""A tensor's name, and its gradients for each sample, shape (N, *its own)."""

cross_entropies: SampleLoss = partial(F.cross_entropy, reduction="none")

TRIED = 2
"""Samples on which the layers are compared with torch's own gradient before they are trusted."""

AGREEMENT = 0.02
"""The share of a gradient's length by which they may miss it: rounding is less, what is wrong more."""

FUNCTION_BYTES = 1 << 28
"""Memory up to which samples go through `torch.func` together, as far as gradients take it."""


class SampleGradients:
    """Computes the gradient of each sample's loss by the trainable tensors of `model`.

    The model runs in the mode that it is in, and is left as it was. With the `precision` "bfloat16" the
    forward and backward passes round to it.

    >>> line = nn.Linear(2, 1)
    >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2)
    >>> gradients = dict(SampleGradients(line, loss=lambda z, y: z[:, 0])(x, y))
    >>> gradients["weight"].tolist(), gradients["bias"].tolist()
    ([[[1.0, 2.0]], [[3.0, 4.0]]], [[1.0], [1.0]])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: SampleLoss = cross_entropies,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        norms = (part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm))
        if any(norm.training for norm in norms):
            raise BadInput(
                "batch norm in train mode mixes the samples of a batch, so that none has a gradient of its "
                "own; put the model in eval mode, or replace batch norm by group norm"
            )
        self._model, self._loss, self._precision = model, loss, precision
        self._parameters = {name: part for name, part in model.named_parameters() if part.requires_grad}
        self._owners = _owners(model, self._parameters)
        self._tried = False

    def __call__(self, x: Tensor, y: Tensor) -> Iterator[Named]:
        """Each tensor's name and its gradients, shape (N, *its own).

        `x`, shape (N, ...), are the samples and `y`, shape (N,), their labels. Tensors come one at a time:
        who keeps none of them holds the gradients by one, beside the batch's activations. Large sets should
        come in batches.
        """
        for name, part in self.pieces(x, y):
            yield name, part.gradients() if isinstance(part, LayerUse) else part

    def pieces(self, x: Tensor, y: Tensor) -> "Iterator[tuple[str, Tensor | LayerUse]]":
        """The same, with what makes the gradients in their place where that is one use of a layer."""
        if not self._tried:
            self._try(x[:TRIED], y[:TRIED])
            self._tried = len(x) > 1  # with one sample nothing can be taken for another's
        if self._owners:
            uses, losses = self._run(x, y)
            yield from self._by_layers(uses, losses)
            del uses, losses
        others = [name for name in self._parameters if name not in self._owners]
        if others:
            yield from self._by_functions(others, x, y)

    def _try(self, x: Tensor, y: Tensor) -> None:
        """Give up on layers where they do not give torch's own gradient of a weighted sum of the losses.

        That is so where a network reads a layer's weights past it, changes them on the way, or has something
        else than samples along the first axis.
        """
        uses, losses = self._run(x, y)
        if any(len(use.input) != len(x) for use in uses):
            self._owners = {}
            return
        weights = torch.arange(1, len(x) + 1, dtype=losses.dtype)
        parameters = [self._parameters[name] for name in self._owners]
        total = losses @ weights
        if not parameters or not total.requires_grad:
            return
        expected = torch.autograd.grad(total, parameters, retain_graph=True, materialize_grads=True)
        length = torch.stack([part.float().norm() for part in expected]).norm()
        pieces = dict(self._by_layers(uses, losses))
        for name, part in zip(self._owners, expected):
            piece = pieces[name]
            gradients = piece.gradients() if isinstance(piece, LayerUse) else piece
            weighted = torch.tensordot(weights.to(gradients.dtype), gradients, 1)
            if not (weighted - part).norm() <= AGREEMENT * length:
                self._owners = {}

    def _run(self, x: Tensor, y: Tensor) -> "tuple[list[_Use], Tensor]":
        """One forward pass: the uses of known layers, and the loss of each sample."""
        layers = {layer for owners in self._owners.values() for layer, _ in owners}
        with torch.enable_grad(), _watching(layers) as uses:
            return uses, self._losses(self._model, x, y)

    def _losses(self, network: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self._precision == "bfloat16"):
            answers = network(x)
        return self._loss(answers.float() if answers.dtype == torch.bfloat16 else answers, y)

    def _by_layers(self, uses: "list[_Use]", losses: Tensor) -> "Iterator[tuple[str, Tensor | LayerUse]]":
        """The gradients by the tensors of known layers, or the one use that makes them."""
        edges = [use.edge for use in uses if use.edge is not None]
        found = iter(torch.autograd.grad(losses.sum(), edges, allow_unused=True) if edges else ())
        pairs: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}
        for use in uses:
            d = None if use.edge is None else next(found)
            if d is not None:
                pairs.setdefault(use.layer, []).append((use.input, d))
        for name, owners in self._owners.items():
            made = [LayerUse(layer, kind, *pair) for layer, kind in owners for pair in pairs.get(layer, ())]
            if len(made) == 1:
                yield name, made[0]
                continue
            parameter = self._parameters[name]
            total = parameter.new_zeros(()).expand(len(losses), *parameter.shape)
            for use_of_layer in made:
                total = total + use_of_layer.gradients()
            yield name, total

    def _by_functions(self, names: list[str], x: Tensor, y: Tensor) -> Iterator[Named]:
        """The gradients by any tensors, as `torch.func` gives them."""
        chosen = {name: self._parameters[name].detach() for name in names}

        def loss(tensors: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            network = partial(functional_call, self._model, tensors)
            return self._losses(lambda batch: network((batch,)), image[None], label[None])[0]

        size = sum(part.numel() * part.element_size() for part in chosen.values())
        together = max(1, FUNCTION_BYTES // size)
        try:
            mapped = vmap(grad(loss), (None, 0, 0), randomness="different", chunk_size=together)
            yield from mapped(chosen, x, y).items()
        except RuntimeError:  # control flow by values, or an operation without a rule for batches
            alone = [grad(loss)(chosen, image, label) for image, label in zip(x, y)]
            yield from ((name, torch.stack([one[name] for one in alone])) for name in names)


@dataclass(frozen=True, eq=False)
class LayerUse:
    """One use of a layer: its `input`, shape (N, ...), and the derivatives by its output, shape (N, ...).

    With the `kind` of a tensor, weight or bias, they make its gradients.
    """

    layer: nn.Module
    kind: str
    input: Tensor
    derivative: Tensor

    def gradients(self) -> Tensor:
        """Those of each sample by the tensor, shape (N, *its own)."""
        return derivative(self.layer, self.kind, self.input, self.derivative)


@dataclass(frozen=True, eq=False)
class _Use:
    """One use of a layer: its input, and where the derivative by its output will pass."""

    layer: nn.Module
    input: Tensor
    edge: GradientEdge | None


def _owners(model: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, list[tuple[nn.Module, str]]]:
    """The known layers that a tensor belongs to, and what it is there: weight or bias."""
    names = {id(part): name for name, part in parameters.items()}
    owners: dict[str, list[tuple[nn.Module, str]]] = {}
    for layer in filter(known, model.modules()):
        for kind, part in layer.named_parameters(recurse=False):
            if id(part) in names:
                owners.setdefault(names[id(part)], []).append((layer, kind))
    return owners


@contextmanager
def _watching(layers: set[nn.Module]) -> Iterator[list[_Use]]:
    """Keeps every use of `layers`."""
    uses: list[_Use] = []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # The edge is taken at once: an activation in place would put itself between the tensor and the layer.
        edge = get_gradient_edge(output) if output.requires_grad else None
        uses.append(_Use(layer, inputs[0].detach(), edge))

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield uses
    finally:
        for hook in hooks:
            hook.remove()
