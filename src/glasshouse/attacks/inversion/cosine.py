"""Images from a gradient: those whose own gradient points the same way (Geiping et al. 2020).

The objective is  1 - cos(gradient of the images, gradient seen) + tv * TV(images).  Adam follows the sign of
its derivative by the pixels, which stay in [0, 1]. The derivative comes from a second backward pass: a finite
difference of input gradients costs as much and, through ReLUs, has the right sign for hardly more than half
of the pixels.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.attack import Attack
from glasshouse.attacks.inversion.effort import affordable_steps
from glasshouse.learning.layout import Layout
from glasshouse.options import check_number, check_whole

RATE = 0.1
"""Adam's learning rate at first."""

DROPS = (3 / 8, 5 / 8, 7 / 8)
"""The shares of the steps after which the learning rate falls to a tenth."""

HEAT = 1 / 8
"""The share of the steps after which only the best of several restarts goes on."""

PATIENCE = 1 / 10
"""The share of the steps without progress that counts as a plateau."""

PROGRESS = 1e-4
"""How much lower, relatively, the objective must fall to count as progress."""


class Inversion(Attack):
    """Ends in an inversion of `steps`, null for as many as about a minute allows, from `restarts` starts.

    `tv` weighs the penalty on rough images.
    """

    name: ClassVar[str]
    family = "reconstruction"
    needs = (BlindServerAccess,)
    steps: int | None
    restarts: int
    tv: float

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_whole(self.name, "steps", self.steps, 1)
        check_whole(self.name, "restarts", self.restarts, 1)
        check_number(self.name, "tv", self.tv, 0)

    def invert(
        self,
        protocol: Protocol,
        network: nn.Module,
        gradient: Tensor,
        labels: Tensor,
        known: Tensor,
        rng: torch.Generator,
    ) -> Tensor:
        """The images of `labels`, shape (n,), behind the `known` entries of a gradient of `network`."""
        layout, shape = protocol.layout, protocol.shape
        steps = self.steps or affordable_steps(layout, len(labels))
        effort = {"steps": steps, "restarts": self.restarts}
        return invert(network, layout, gradient, labels, shape, tv=self.tv, known=known, rng=rng, **effort)


def invert(
    network: nn.Module,
    layout: Layout,
    gradient: Tensor,
    labels: Tensor,
    shape: tuple[int, int, int],
    *,
    steps: int,
    restarts: int = 1,
    tv: float = 0.2,
    known: Tensor | None = None,
    rng: torch.Generator,
) -> Tensor:
    """The images of `labels`, shape (n,), that explain `gradient`; shape (n, C, H, W) in [0, 1].

    `network` holds the weights that the gradient, shape (P,), was taken at, and is in the mode in which its
    client ran it; its buffers are left as they were. Only trainable entries count, and where `known`, bool of
    shape (P,), is given, only those it marks. Of several restarts the one with the best start goes on.
    """
    objective = _Objective(network, layout, gradient, labels, known, tv)
    runs = [_Run(torch.rand(len(labels), *shape, generator=rng), steps) for _ in range(restarts)]
    if restarts > 1:
        for run in runs:
            run.go(objective, until=max(1, round(HEAT * steps)))
    best = min(runs, key=lambda run: run.lowest)
    best.go(objective, until=steps)
    return best.image


def total_variation(x: Tensor) -> Tensor:
    """The mean difference of neighbouring pixels, along both axes, over any number of channels; a scalar."""
    across = (x[..., 1:] - x[..., :-1]).abs().mean() if x.shape[-1] > 1 else x.new_zeros(())
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().mean() if x.shape[-2] > 1 else x.new_zeros(())
    return across + down


class _Objective:
    """How far the gradient of some images is from the one seen, and how rough they are."""

    def __init__(
        self,
        network: nn.Module,
        layout: Layout,
        gradient: Tensor,
        labels: Tensor,
        known: Tensor | None,
        tv: float,
    ) -> None:
        self._network, self._labels, self._tv = network, labels, tv
        seen = layout.named(gradient.detach())
        marks = layout.named(torch.ones_like(gradient) if known is None else known.to(gradient.dtype))
        named = [(name, weight) for name, weight in network.named_parameters() if marks[name].any()]
        self._weights = [weight for _, weight in named]
        self._masks = [marks[name] for name, _ in named]
        targets = [seen[name] * marks[name] for name, _ in named]
        length = _norm(targets).clamp_min(torch.finfo(gradient.dtype).tiny)
        self._targets = [target / length for target in targets]
        self._buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]

    def __call__(self, x: Tensor) -> tuple[float, Tensor]:
        """The objective, and its derivative by the pixels, shape (n, C, H, W)."""
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(self._network(x), self._labels)
        gradient = torch.autograd.grad(loss, self._weights, create_graph=True)
        gradient = tuple(part * mask for part, mask in zip(gradient, self._masks))
        dot = torch.stack([(part * target).sum() for part, target in zip(gradient, self._targets)]).sum()
        value = 1 - dot / _norm(gradient).clamp_min(1e-30) + self._tv * total_variation(x)
        (slope,) = torch.autograd.grad(value, x)
        for buffer, before in self._buffers:
            buffer.copy_(before)  # batch norm notes the statistics of every batch it sees in training
        return value.item(), slope


class _Run:
    """One restart: images, their optimiser, and the best so far."""

    def __init__(self, start: Tensor, steps: int) -> None:
        self.image, self.lowest = start.clone(), float("inf")
        self._x = start
        self._adam = torch.optim.Adam([start], RATE)
        self._drops = [round(share * steps) for share in DROPS]
        self._patience = max(20, round(PATIENCE * steps))
        self._done = self._dropped = self._since = 0

    def go(self, objective: _Objective, until: int) -> None:
        """Step until `until` steps of the schedule are done; a plateau skips to the next learning rate."""
        while self._done < until:
            self._step(objective)
            ahead = self._drops[self._dropped :]
            if self._since >= self._patience:
                if not ahead:
                    return
                self._done = ahead[0]
            if ahead and self._done >= ahead[0]:
                self._dropped, self._since = self._dropped + 1, 0
                self._adam.param_groups[0]["lr"] = RATE * 0.1**self._dropped

    def _step(self, objective: _Objective) -> None:
        value, slope = objective(self._x)
        progress = value < self.lowest * (1 - PROGRESS) or self.lowest == float("inf")
        self._since = 0 if progress else self._since + 1
        if value < self.lowest:
            self.lowest, self.image = value, self._x.clone()
        self._x.grad = slope.sign()
        self._adam.step()
        self._x.clamp_(0, 1)
        self._done += 1


def _norm(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.square().sum() for part in parts]).sum().sqrt()
