"""The fast gradient sign method (Goodfellow et al. 2015)."""

from dataclasses import dataclass

from torch import Tensor

from glasshouse.attacks.evasion.evasion import Evasion, Originals, Path, Problem


@dataclass(frozen=True, kw_only=True)
class FGSM(Evasion):
    """Moves every pixel by `eps` in the direction that raises the loss; `pgd`'s first step from the image.

    Without an `eps` it takes the batch-robustness paper's: 0.3 for grey images, 0.02 for colour ones. Several
    cost little more than one. An image that is wrong without an attack stays as it is.
    """

    name = "fgsm"

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        slope = problem.clean.slope[originals.positions]
        return Path(originals, originals.ball.at(originals.ball.uphill(slope)))

    def signs(self, problem: Problem, sizes: tuple[float, ...], fell: Tensor) -> list[str]:
        """None: what a single step leaves right is not taken for robustness."""
        return []
