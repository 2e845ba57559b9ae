"""From transformed images back to the originals, for somebody who knows what may have been done to each."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshouse.attacks.inversion.priors import total_variation
from glasshouse.defences.policies.draws import Draw

STEPS, RATE = 150, 0.05
"""Steps of Adam for each case, and the rate that they begin with."""

SMOOTH = 1e-3
"""The weight of total variation, which fills in what a transformation pushed out of the frame."""

ALIKE = (2 / 255) ** 2
"""Mean squared errors that differ by less are alike: two levels are what rounding leaves."""

UNDONE = "the images were sought as the policy transformed them, which was then undone"


def undone(images: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, list[Draw]]:
    """The images in [0, 1] that became `images`, shape (n, C, H, W), and by which of the draws each did.

    For each draw T the x with the lowest  mean((T(x) - y)^2) + SMOOTH * (total variation of x)  is sought. Of
    draws that explain y alike the one counts whose image has the most contrast: photographs mostly use the
    whole range of levels, and a draw that would need more than the range does not explain them.
    """
    tried = [_through(draw, images) for draw in draws]
    originals = torch.stack([x for x, _ in tried])
    errors = torch.stack([error for _, error in tried])
    alike = errors <= errors.amin(0) + ALIKE
    spread = originals.flatten(2).std(2)
    chosen = torch.where(alike, spread, -1.0).argmax(0)
    return originals[chosen, torch.arange(len(images))], [draws[place] for place in chosen.tolist()]


def _through(draw: Draw, images: Tensor) -> tuple[Tensor, Tensor]:
    """The originals under one draw, and the mean squared error that each leaves, shape (n,)."""
    x = images.clone().clamp_(0, 1).requires_grad_()
    optimiser = torch.optim.Adam([x], RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        optimiser.zero_grad()
        value = _errors(draw, x, images).sum() + SMOOTH * len(x) * total_variation(x)
        (x.grad,) = torch.autograd.grad(value, x)
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    with torch.no_grad():
        return x.detach(), _errors(draw, x, images)


def _errors(draw: Draw, x: Tensor, images: Tensor) -> Tensor:
    return (draw.apply(x) - images).square().flatten(1).mean(1)
