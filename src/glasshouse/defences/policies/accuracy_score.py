"""S_acc: whether a network can still tell transformed images apart, without training (ATS, Gao et al. 2021).

After Mellor et al. (2021): a network that has not been trained answers different images by different local
linear maps if it can learn to tell them apart. With J_i the derivative of the summed logits by image i and v
the eigenvalues of the correlation matrix of the J_i of a batch of N,

    S_acc = - sum over v of log(v + 1e-5) + 1 / (v + 1e-5)

Higher is better. The eigenvalues add up to N and each term is at least 1, at v = 1: the best score of a batch
is -N, that of images whose maps have nothing in common. So scores depend on N, and a threshold does too.

Choices. As in the authors' code a batch has one image of each class, the first: images of a class may well
be alike. Of 100 images of 100 classes that leaves about 63, for which the published threshold of -85 is made;
for another N it is scaled to -85/63 N, the score of maps that correlate by about one half, whatever N is.
Maps that do not vary at all over pixels correlate with nothing, not even themselves: v = 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.policies.privacy_score import Transform
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.seeds import torch_rng

SMALL = 1e-5
"""What keeps the logarithm and the reciprocal of an eigenvalue of zero finite."""

THRESHOLD = -85 / 63
"""The lowest score an image, with which a policy is kept."""


@dataclass(frozen=True)
class AccuracyScore:
    """The mean score of batches of `images` on average, each of another class."""

    value: float
    images: float
    batches: int

    @property
    def threshold(self) -> float:
        """The lowest score of a policy that is kept."""
        return THRESHOLD * self.images

    @property
    def passes(self) -> bool:
        """Whether the policy is kept."""
        return self.value >= self.threshold


def accuracy_score(
    model: nn.Module, batches: Sequence[Images], transform: Transform, *, seed: int = 0
) -> AccuracyScore:
    """S_acc of `transform` for `model`, untrained and in eval mode: the mean over `batches`."""
    assert not any(module.training for module in model.modules()), "scores are taken in eval mode"
    scores, sizes = [], []
    for number, batch in enumerate(batches):
        distinct = one_of_each_class(batch)
        transformed = transform(distinct.x, torch_rng(seed, "transform", number))
        scores.append(batch_score(local_maps(model, transformed)))
        sizes.append(len(distinct))
    return AccuracyScore(sum(scores) / len(scores), sum(sizes) / len(sizes), len(scores))


def one_of_each_class(images: Images) -> Images:
    """The first image of each class, in their order."""
    first: dict[int, int] = {}
    for place, label in enumerate(images.y.tolist()):
        first.setdefault(label, place)
    return images[torch.tensor(list(first.values()))]


def local_maps(model: nn.Module, x: Tensor) -> Tensor:
    """The derivative of each image's summed logits by its pixels, shape (N, C H W)."""
    x = channels_last(x.detach()).requires_grad_(True)
    with torch.enable_grad():
        (maps,) = torch.autograd.grad(model(x).sum(), x)
    return maps.flatten(1)


def batch_score(maps: Tensor) -> float:
    """S_acc of one batch with these local maps, shape (N, D).

    >>> round(batch_score(torch.tensor([[1.0, -1, 0, 0], [0, 0, 1, -1]])), 3)  # nothing in common: -N
    -2.0
    """
    centred = maps.double() - maps.double().mean(1, keepdim=True)
    lengths = centred.norm(dim=1, keepdim=True)
    standard = torch.where(lengths > 0, centred / lengths, 0.0)
    eigenvalues = torch.linalg.eigvalsh(standard @ standard.T).clamp(min=0) + SMALL
    return -float((eigenvalues.log() + 1 / eigenvalues).sum())
