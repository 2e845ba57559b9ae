"""Signs that a model hides its gradients: accuracy under gradient attacks is then no robustness.

After the checks of Athalye et al. (2018) and Carlini et al. (2019). None proves anything; each names a way in
which gradient attacks did worse than they would on a model with useful gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest
from torch import Tensor

from glasshouse.attacks.evasion.frozen import CHUNK, Frozen, Sight
from glasshouse.measures.estimate import clopper_pearson

UNSTEADY = 1e-3
"""By what share of the largest logit two answers to one image may differ."""
FLAT = 0.01
"""The share of images without any slope from which gradients count as vanishing."""
HIDDEN = 0.005
"""The share of images that may fall only without gradients: an honest model has one in a few hundred."""
SURE = 0.01
"""How rarely a paired comparison may mislead: the level of its sign test."""
PLENTY = 10
"""Images that must have fallen before a curve that stops falling says something."""


@dataclass
class PairedCounts:
    """How many images only the one attack fooled, and how many only the other, on the same images."""

    first: int = 0
    second: int = 0

    def add(self, first: Tensor, second: Tensor) -> None:
        """Count further images, each bool of shape (N,)."""
        self.first += int((first & ~second).sum())
        self.second += int((second & ~first).sum())

    def first_wins(self) -> bool:
        """Whether the first is better, by more than luck."""
        both = self.first + self.second
        return both > 0 and binomtest(self.first, both, alternative="greater").pvalue < SURE


def at_first_sight(model: Frozen, x: Tensor, clean: Sight, right: Tensor) -> list[str]:
    """Signs in what a look at the images `x` showed: the logits, and the slope of those that are `right`."""
    signs = []
    again = model.answers(x[:CHUNK])
    if (again - clean.logits[:CHUNK]).abs().max() > UNSTEADY * again.abs().max():
        signs.append("the model answers the same image differently when asked again")
    flat = (clean.slope[right] == 0).flatten(1).all(1)
    if len(flat) and flat.double().mean() >= FLAT:
        signs.append(
            f"the gradient of the loss is exactly zero for {int(flat.sum())} of {len(flat)} images, "
            "so attacks that climb it stand still"
        )
    return signs


def stalled(sizes: Sequence[float], fell: Tensor) -> list[str]:
    """A sign where far larger limits fool hardly more images; `fell`, shape (E, N), says who fell by when."""
    counts = fell.sum(1).tolist()
    for (small, few), (large, many) in zip(zip(sizes, counts), list(zip(sizes, counts))[1:]):
        left = fell.shape[1] - few
        if large >= 2 * small > 0 and few >= PLENTY and left >= few and many - few < few / 10:
            return [f"eps {large:g} fools hardly more images than {small:g} does ({many} and {few})"]
    return []


def unbroken(left: int, y: Tensor, eps: float) -> list[str]:
    """A sign where `left` of the images with labels `y` survive a limit that lets all become the same."""
    commonest = y.bincount().max().item() / len(y)
    if clopper_pearson(left, len(y))[0] <= commonest:
        return []
    return [
        f"within eps {eps:g} every image could be made the same uniform grey, yet gradient attacks leave "
        f"{left} of {len(y)} right"
    ]


def compared(one_step: PairedCounts, noise: PairedCounts, hidden: Tensor) -> list[str]:
    """Signs in how attacks did beside each other: each comparison is with gradient attacks of many steps."""
    signs = []
    if one_step.first_wins():
        signs.append(
            f"one step fools {one_step.first} images that many steps do not, against {one_step.second}"
        )
    if noise.first_wins():
        signs.append(f"noise fools {noise.first} images that gradients do not, against {noise.second}")
    if clopper_pearson(int(hidden.sum()), len(hidden))[0] > HIDDEN:
        signs.append(f"{int(hidden.sum())} of {len(hidden)} images fall only to attacks without gradients")
    return signs
