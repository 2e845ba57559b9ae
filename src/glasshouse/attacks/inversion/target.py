"""What an inversion has to explain: a gradient that was seen, and how a batch of images would give one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from glasshouse.errors import CannotRun, fault_of, named
from glasshouse.learning.fit import batches
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.curvature.product import differentiable
from glasshouse.models.freezing import exchanged

CUT_OFF = (
    "the images are cut off from the gradient: the network detaches tensors or turns gradients off, so no "
    "search can follow the gradient to them"
)


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """The local training that an attacker simulates: the `recipe`, and the batches of each of its epochs.

    The order of the client's own batches is unknown: `batches` are the attacker's, positions of images, epoch
    by epoch. Each epoch has a copy of the images of its own, which frees it from that order.
    """

    recipe: Recipe
    batches: tuple[tuple[Tensor, ...], ...]


@dataclass(frozen=True, eq=False)
class Target:
    """The `gradient`, shape (P,), that `count` images of `shape` are sought for.

    `network` holds the weights that it was taken at, and is in the mode in which its client ran it. Only
    trainable entries count, and where `known`, bool of shape (P,), is given, only those it marks. `labels`,
    shape (count,), are null where they are sought with the images. With a `training` the gradient is what a
    whole local training moved, by the rate that an optimiser of plain steps would have had. `trust`, where
    it is given, weighs the tensor of each parameter by name. The client spread the share `smoothing` of each
    label over all classes, and cut gradients to the length `clip`; 0 for not at all.
    """

    network: nn.Module
    layout: Layout
    gradient: Tensor
    shape: tuple[int, int, int]
    classes: int
    count: int
    labels: Tensor | None = None
    known: Tensor | None = None
    training: LocalTraining | None = None
    trust: Mapping[str, float] | None = None
    smoothing: float = 0.0
    clip: float = 0.0

    @property
    def copies(self) -> int:
        """How many copies of the images are sought: one for each epoch that is simulated."""
        return 1 if self.training is None else len(self.training.batches)

    @property
    def alone(self) -> bool:
        """Whether a single image is sought, in a single copy."""
        return self.count == self.copies == 1


class Matcher:
    """Computes the gradient of images as the client would have, beside the one seen, tensor by tensor."""

    def __init__(self, target: Target) -> None:
        self._target, network = target, target.network
        seen = target.layout.named(target.gradient.detach())
        marks = None if target.known is None else target.layout.named(target.known)
        parameters = exchanged(network)
        self.names = [name for name in parameters if marks is None or marks[name].any()]
        self._weights = [parameters[name] for name in self.names]
        self.trust = [1.0 if target.trust is None else target.trust[name] for name in self.names]
        self._masks = None if marks is None else [marks[name].to(seen[name].dtype) for name in self.names]
        self.seen = self._masked([seen[name] for name in self.names])
        self._reaches = False

    def __call__(self, x: Tensor, labels: Tensor) -> list[Tensor]:
        """The gradient of images, shape (copies, n, C, H, W), differentiable by them.

        `labels` are classes, shape (n,), or their probabilities, shape (n, classes).
        """
        if self._target.training is not None:
            return self._masked(self._trained(x, labels, self._target.training))
        return self._masked(self._cut(self._gradient(self._weights, x[0], labels)))

    def check_reaches(self, value: Tensor, x: Tensor) -> None:
        """Refuse a `value` of the gradient that does not depend on images `x`, or has no derivative by them.

        What holds once holds for all images, where a derivative is asked for.
        """
        if self._reaches or not x.requires_grad:
            return
        slope = None
        if value.requires_grad:
            with _deriving():
                (slope,) = torch.autograd.grad(value, x, retain_graph=True, allow_unused=True)
        if slope is None:
            raise CannotRun(CUT_OFF)
        self._reaches = True

    def _trained(self, x: Tensor, labels: Tensor, training: LocalTraining) -> tuple[Tensor, ...]:
        """How far local training on the images moves the weights, over the rate of its steps.

        Momentum and weight decay act as in torch: with d = g + decay w, v = m v + d, then w = w - rate v, or
        with Nesterov's momentum w = w - rate (d + m v).
        """
        recipe, samples = training.recipe, x.shape[1]
        weights: list[Tensor] = list(self._weights)
        velocity = [torch.zeros_like(weight) for weight in weights]
        drawn = [(epoch, batch) for epoch, batches in enumerate(training.batches) for batch in batches]
        for (epoch, batch), rate in zip(drawn, recipe.rates(samples), strict=True):
            gradient = self._cut(self._gradient(weights, x[epoch, batch], labels[batch]))
            decayed = [step + recipe.weight_decay * weight for step, weight in zip(gradient, weights)]
            velocity = [recipe.momentum * moving + step for moving, step in zip(velocity, decayed)]
            moves = velocity
            if recipe.nesterov:
                moves = [step + recipe.momentum * moving for moving, step in zip(velocity, decayed)]
            weights = [weight - rate * move for weight, move in zip(weights, moves)]
        rate = recipe.effective_rate(samples)
        return tuple((start - end) / rate for start, end in zip(self._weights, weights))

    def _gradient(self, weights: Sequence[Tensor], x: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The gradient of one batch at `weights`."""
        # Batch norm in training notes the statistics of every batch, and a second backward pass refuses
        # buffers that changed after the first: each pass has buffers of its own, and the network keeps its.
        buffers = {name: buffer.clone() for name, buffer in self._target.network.named_buffers()}
        state = {**dict(zip(self.names, weights)), **buffers}
        with differentiable():
            logits = functional_call(self._target.network, state, (x,))
            loss = F.cross_entropy(logits, labels, label_smoothing=self._target.smoothing)
            with _deriving():
                return torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)

    def _cut(self, gradient: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The gradient of one batch as the client's optimiser got it."""
        clip = self._target.clip
        if not clip:
            return gradient
        length = torch.stack([torch.linalg.vector_norm(part) for part in gradient]).norm()
        share = (clip / (length + 1e-6)).clamp(max=1)  # as torch.nn.utils.clip_grad_norm_ has it
        return tuple(part * share for part in gradient)

    def _masked(self, parts: Sequence[Tensor]) -> list[Tensor]:
        if self._masks is None:
            return list(parts)
        return [part * mask for part, mask in zip(parts, self._masks)]


@contextmanager
def _deriving() -> Iterator[None]:
    """Turn the refusal of torch to differentiate a network into a reason why no search can run."""
    try:
        yield
    except RuntimeError as error:
        if fault := fault_of(error):
            raise fault from error
        raise CannotRun(
            f"the network's gradient cannot be differentiated by the images: {named(error)}"
        ) from error


def drawn_batches(samples: int, recipe: Recipe, rng: torch.Generator) -> tuple[tuple[Tensor, ...], ...]:
    """Positions of the batches of each epoch, in an order of the attacker's own."""
    seed = int(torch.randint(2**62, (), generator=rng))
    drawn = tuple(batches(samples, recipe, np.random.default_rng(seed)))
    each = len(drawn) // recipe.epochs
    return tuple(drawn[start : start + each] for start in range(0, len(drawn), each))
