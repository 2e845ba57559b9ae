"""The fast gradient sign method (Goodfellow et al. 2015)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import AdversarialExamples, Attack, Knowledge
from glasshouse.errors import BadInput
from glasshouse.learning.evaluate import CHUNK


@dataclass(frozen=True, kw_only=True)
class FGSM(Attack):
    """Moves every pixel by `eps` in the direction that raises the loss.

    Without an `eps` it takes the batch-robustness paper's: 0.3 for grey images, 0.02 for colour ones.
    """

    eps: float | None = None
    family = "evasion"
    needs = (ModelAccess,)
    told = ("candidates",)

    def __post_init__(self) -> None:
        if self.eps is not None and not 0 <= self.eps <= 1:
            raise BadInput(f"fgsm eps = {self.eps} is out of range; it must lie in [0, 1]")

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        assert knowledge.candidates is not None
        images = knowledge.candidates
        eps = self.eps if self.eps is not None else (0.3 if images.shape[0] == 1 else 0.02)
        moved = []
        for x, y in zip(images.x.split(CHUNK), images.y.split(CHUNK)):
            x = x.clone().requires_grad_()
            loss = F.cross_entropy(access.logits(x), y, reduction="sum")
            (slope,) = torch.autograd.grad(loss, x)
            moved.append((x.detach() + eps * slope.sign()).clamp(0, 1))
        return AdversarialExamples(torch.cat(moved)[None], (eps,))
