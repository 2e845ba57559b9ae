"""The fast gradient sign method (Goodfellow et al. 2015)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.evasion.frozen import Frozen, fooled
from glasshouse.attacks.evasion.limits import Assault, Limit, at_each, check_limits, limits
from glasshouse.attacks.evasion.losses import cross_entropy
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball


@dataclass(frozen=True, kw_only=True)
class FGSM(Attack):
    """Moves every pixel by `eps` in the direction that raises the loss; `pgd`'s first step from the image.

    Without an `eps` it takes the batch-robustness paper's: 0.3 for grey images, 0.02 for colour ones. Several
    cost little more than one. An image that is wrong without an attack stays as it is.
    """

    eps: Limit = None
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        check_limits("fgsm", self.eps)

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        assert knowledge.candidates is not None
        images, frozen = knowledge.candidates, Frozen(access.model)
        sizes = limits(self.eps, images)
        logits, _, slope = frozen.look(images.x, images.y, cross_entropy)
        x, _ = at_each(sizes, "linf", images, fooled(logits, images.y), along(slope, frozen))
        return AdversarialExamples(x, sizes)


def along(slope: Tensor, frozen: Frozen) -> Assault:
    """One step as long as the limit, along the `slope` at every image, shape (N, C, H, W)."""

    def assault(ball: Ball, y: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        x = ball.at(ball.uphill(slope[positions]))
        return x, fooled(frozen.answers(x), y)

    return assault
