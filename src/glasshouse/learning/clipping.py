"""Gradient descent whose every step hides each sample: clipped gradients, noise, and a public divisor."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.learning.per_sample import LayerUse, SampleGradients
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import BatchLoss, Step

CHUNK_BYTES = 1 << 28
"""Memory that the gradients of some samples may take at once."""

TINY = 1e-12
"""Below this length a gradient is left as it is."""

Summed = Callable[[Tensor], Tensor]
"""The sum of one tensor's gradients, each sample's with its weight, from the weights, shape (N,)."""


@dataclass(frozen=True, kw_only=True)
class NoisySum(Step):
    """Puts a noisy sum of clipped gradients in the place of their mean (Abadi et al. 2016).

    Each sample's gradient is cut to the length `norm`, noise of the standard deviation `noise` * `norm` is
    added to the sum, and that is divided by the batch size of the recipe, not by how many were drawn. Samples
    are drawn one by one, by the public number of `records`, null for as many as there are. It cannot start
    before the `noise` is known.
    """

    norm: float
    noise: float | None
    records: int | None = None

    per_sample = True

    def started(self, model: nn.Module, samples: int, recipe: Recipe) -> Step:
        if self.noise is None:
            raise BadInput("dp-sgd does not know its noise yet; train by a plan, or give noise")
        if recipe.mix_up:
            raise BadInput(
                "mix-up leaves no image a gradient of its own, which dp-sgd must clip; leave one of them out"
            )
        size = self.records or samples
        clipped = ClippedSum(model, self.norm, recipe)
        return _Started(size, recipe.batch(size), self.noise * self.norm, clipped)


@dataclass(frozen=True, eq=False)
class _Started(Step):
    """A noisy sum for one training run."""

    records: int
    divisor: int
    std: float
    clipped: "ClippedSum"

    per_sample = True

    @property
    def public_size(self) -> int | None:
        return self.records

    def backward(self, model: nn.Module, x: Tensor, y: Tensor, loss: BatchLoss, rng: torch.Generator) -> None:
        sums = self.clipped(x, y) if loss.plain else self.clipped.one_by_one(x, y, loss)
        sizes = [parameter.numel() for parameter in sums]
        noise = torch.randn(sum(sizes), generator=rng).mul_(self.std) if self.std else torch.zeros(sum(sizes))
        for (parameter, total), part in zip(sums.items(), noise.split(sizes)):
            parameter.grad = part.view(parameter.shape).add_(total).div_(self.divisor).to(parameter.dtype)


class ClippedSum:
    """The sum over samples of the gradients of their losses by the tensors of `model`, each cut to `norm`.

    Of layers that are used once, lengths and sums come from inputs and derivatives where that is cheaper than
    the gradients of all samples.
    """

    def __init__(self, model: nn.Module, norm: float, recipe: Recipe | None = None) -> None:
        recipe = recipe or Recipe()
        losses = partial(F.cross_entropy, reduction="none", label_smoothing=recipe.label_smoothing)
        self._gradients = SampleGradients(model, loss=losses, precision=recipe.precision)
        self._norm = norm
        self._parameters = {name: part for name, part in model.named_parameters() if part.requires_grad}
        size = sum(part.numel() * part.element_size() for part in self._parameters.values())
        self._together = max(1, CHUNK_BYTES // max(1, size))

    def __call__(self, x: Tensor, y: Tensor) -> dict[nn.Parameter, Tensor]:
        """The sums for images `x`, shape (N, ...), with labels `y`, shape (N,); N may be 0."""
        totals: dict[nn.Parameter, Tensor] = {}
        for part_x, part_y in zip(x.split(self._together), y.split(self._together)):
            if len(part_x):
                for name, total in self._sums(part_x, part_y):
                    _add(totals, self._parameters[name], total)
        return self._complete(totals)

    def one_by_one(self, x: Tensor, y: Tensor, loss: BatchLoss) -> dict[nn.Parameter, Tensor]:
        """The same for any loss, with a backward pass for each sample."""
        totals: dict[nn.Parameter, Tensor] = {}
        parameters = list(self._parameters.values())
        for one_x, one_y in zip(x.split(1), y.split(1)):
            if not len(one_x):
                continue
            gradients = torch.autograd.grad(loss(one_x, one_y), parameters, materialize_grads=True)
            length = torch.stack([part.float().norm() for part in gradients]).norm()
            weight = (self._norm / length.clamp_min(TINY)).clamp_max(1)
            for parameter, part in zip(parameters, gradients):
                _add(totals, parameter, part * weight)
        return self._complete(totals)

    def _sums(self, x: Tensor, y: Tensor) -> Iterator[tuple[str, Tensor]]:
        squares = torch.zeros(len(x))
        sums: dict[str, Summed] = {}
        for name, gradients in self._gradients.pieces(x, y):
            square, sums[name] = _by_use(gradients) if isinstance(gradients, LayerUse) else _by_all(gradients)
            squares += square
        weights = (self._norm / squares.sqrt().clamp_min(TINY)).clamp_max(1)
        for name, summed in sums.items():
            yield name, summed(weights).view_as(self._parameters[name])

    def _complete(self, totals: dict[nn.Parameter, Tensor]) -> dict[nn.Parameter, Tensor]:
        """In the order of the parameters, with zeros for those that no sample moves."""
        return {
            part: totals[part] if part in totals else torch.zeros_like(part)
            for part in self._parameters.values()
        }


def _add(totals: dict[nn.Parameter, Tensor], parameter: nn.Parameter, part: Tensor) -> None:
    totals[parameter] = totals[parameter] + part if parameter in totals else part


@torch.no_grad()
def _by_all(gradients: Tensor) -> tuple[Tensor, Summed]:
    """Squared lengths, shape (N,), and the weighted sum of gradients that are there, shape (N, ...)."""
    flat = gradients.detach().flatten(1)
    return torch.linalg.vecdot(flat, flat).float(), lambda weights: weights.to(flat.dtype) @ flat


@torch.no_grad()
def _by_use(use: LayerUse) -> tuple[Tensor, Summed]:
    """The same for one use of a layer, without the gradients where its weight has an entry for each pair.

    The gradient of a linear layer is the outer product of d and a, and has the length |d| |a|.
    """
    a, d = use.input, use.derivative
    if not (isinstance(use.layer, nn.Linear) and use.kind == "weight" and a.ndim == 2):
        return _by_all(use.gradients())
    a, d = a.float(), d.float()
    lengths = torch.linalg.vecdot(a, a) * torch.linalg.vecdot(d, d)
    return lengths, partial(_outer, a, d)


def _outer(a: Tensor, d: Tensor, weights: Tensor) -> Tensor:
    return (d * weights[:, None]).t() @ a
