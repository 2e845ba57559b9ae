"""Whether images explain an update: whether the gradient that they have is the one that was seen."""

import math
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor

from glasshouse.attacks.inversion.distances import worst_tensor
from glasshouse.attacks.inversion.target import Matcher, Target
from glasshouse.attacks.inversion.targets import make_target
from glasshouse.attacks.inversion.updates import AttackedUpdate, rounding
from glasshouse.learning.seeds import torch_rng


class Explanation:
    """What `count` images have to explain of an update, and how far off any such images are.

    Up to `simulate` local steps are simulated. Where `labels`, shape (count,), are null, each question brings
    its own.
    """

    def __init__(
        self, update: AttackedUpdate, labels: Tensor | None, count: int, *, simulate: int = 0
    ) -> None:
        target, _ = make_target(update, labels, count, simulate, torch_rng(0))
        self._target, self._matcher = target, Matcher(target)
        self._rounding = self._lengths_of_rounding(update)

    def mismatch(self, x: Tensor, labels: Tensor) -> float:
        """1 minus the cosine of the images' gradient and the one seen, in the tensor where it is largest.

        The images have shape (count, C, H, W). Tensors that hold nothing but rounding are left out.
        """
        copies = x.to(self._target.gradient.dtype).expand(self._target.copies, *x.shape)
        return worst_tensor(self._matcher(copies, labels), self._matcher.seen, self._rounding)

    def mismatch_of_noise(self, labels: Tensor) -> float:
        """The mismatch that noise has with these labels."""
        return self.mismatch(self._noise, labels)

    @property
    def _noise(self) -> Tensor:
        return torch.rand(self._target.count, *self._target.shape, generator=torch_rng(0))

    def _lengths_of_rounding(self, update: AttackedUpdate) -> list[float]:
        """The length of what is rounding in each tensor that was seen.

        The weights were rounded before and after the step, and so were the sums that a gradient is made of.
        What the latter amounts to shows in noise, whose gradient is computed in two precisions; its share of
        the whole gradient is about that of any images.
        """
        noise, target = self._noise.expand(self._target.copies, -1, -1, -1, -1), self._target
        labels = target.labels
        if labels is None:
            labels = torch.zeros(target.count, dtype=torch.long)
        exactly = Matcher(_doubled(target))(noise.double(), labels)
        nearly = self._matcher(noise.to(target.gradient.dtype), labels)
        share = _length(self._matcher.seen) / max(_length(exactly), 1e-300)
        return [
            share * _length([near.double() - exact]) + rounding(update, name) * math.sqrt(exact.numel())
            for name, near, exact in zip(self._matcher.names, nearly, exactly)
        ]


def _doubled(target: Target) -> Target:
    """The same target in double precision."""
    return replace(target, network=deepcopy(target.network).double(), gradient=target.gradient.double())


def _length(tensors: list[Tensor]) -> float:
    """The length of all entries together."""
    return math.sqrt(sum(float(tensor.detach().double().square().sum()) for tensor in tensors))
