"""S_pri: how much of a transformed image a gradient shows on the way from noise to it (ATS, Gao et al. 2021).

An inversion begins at noise and looks for an image with the gradient that was seen. With x' the transformed
image, y its label, z uniform noise, and g_t(x) the gradient of the loss at x by the parameter tensor t of T,

    GradSim(x, x') = 1/T sum over t of cos(g_t(x), g_t(x'))
    S_pri          = the area under GradSim((1 - s) z + s x', x') for s from 0 to 1

by the trapezoidal rule on 21 points, and its mean over images. Lower is better: the gradient stays unlike the
one that is sought for longer. A tensor whose gradient is zero points nowhere, and its cosine counts as 0.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.per_sample import SampleGradients
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.registry import unknown

Transform = Callable[[Tensor, torch.Generator], Tensor]
"""Images in [0, 1], shape (B, C, H, W), to transformed ones of the same shape."""

Precision = Literal["float32", "bfloat16"]

PRECISIONS: dict[str, Precision] = {"float32": "float32", "bfloat16": "bfloat16"}

POINTS = 21
"""Images on the way from noise to the transformed image, both ends included."""

GRADIENT_BYTES = 1 << 26
"""Memory for the gradients by one tensor at the points of all images that are taken at once."""

FEWEST_POINTS = 3
"""Points that are taken at once at least, however large the gradients: with each come those of the goal."""

TOGETHER = 8
"""Images that are taken at once at most: more are no faster."""


def privacy_score(
    model: nn.Module, images: Images, transform: Transform, *, seed: int = 0, precision: Precision = "float32"
) -> Estimate:
    """S_pri of `transform` for `model`, semi-trained and in eval mode: its mean over `images`."""
    scores = image_scores(model, images, transform, seed=seed, precision=precision)
    return mean(scores.tolist(), bounds=(-1.0, 1.0))


def as_precision(name: str) -> Precision:
    """The precision called `name`."""
    if name not in PRECISIONS:
        raise BadInput(unknown("precision", name, tuple(PRECISIONS)))
    return PRECISIONS[name]


def image_scores(
    model: nn.Module,
    images: Images,
    transform: Transform,
    *,
    seed: int = 0,
    first: int = 0,
    precision: Precision = "float32",
) -> np.ndarray:
    """S_pri of each image alone, shape (N,).

    Its noise and what `transform` draws follow from `seed` and its number, which counts from `first`: the
    same for all transformations, and however images are divided among calls.
    """
    assert not any(module.training for module in model.modules()), "scores are taken in eval mode"
    gradients = SampleGradients(model, precision=precision)
    together, in_turn = _together(model)
    pairs = [_ends(image[None], transform, seed, first + place) for place, image in enumerate(images.x)]
    scores = []
    for start in range(0, len(pairs), together):
        noise, goal = (torch.cat(ends) for ends in zip(*pairs[start : start + together]))
        parts = torch.linspace(0, 1, POINTS, dtype=goal.dtype).split(in_turn)
        labels = images.y[start : start + together]
        similarity = torch.cat([_similarities(gradients, noise, goal, labels, part) for part in parts], dim=1)
        scores.append(torch.trapezoid(similarity, dx=1 / (POINTS - 1)))
    return torch.cat(scores).numpy()


def _ends(image: Tensor, transform: Transform, seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Noise and the transformed image, of shape (1, C, H, W) both."""
    noise = torch.rand(image.shape, generator=torch_rng(seed, "noise", number), dtype=image.dtype)
    return noise, transform(image, torch_rng(seed, "transform", number))


def _similarities(
    gradients: SampleGradients, noise: Tensor, goal: Tensor, y: Tensor, shares: Tensor
) -> Tensor:
    """GradSim to the goal at its `shares` of the way, shape (S,), for each image; float64 of shape (N, S)."""
    # The last point gives the gradient that the others are compared with.
    ending = shares if shares[-1] == 1 else torch.cat([shares, shares.new_ones(1)])
    share = ending[:, None, None, None]
    points = (1 - share) * noise[:, None] + share * goal[:, None]
    total = torch.zeros(len(y), len(ending), dtype=torch.float64)
    tensors = 0
    for _, gradient in gradients(channels_last(points.flatten(0, 1)), y.repeat_interleave(len(ending))):
        total += cosines(gradient.reshape(len(y), len(ending), -1))
        tensors += 1
    return total[:, : len(shares)] / tensors


def cosines(gradients: Tensor) -> Tensor:
    """The cosine of each row of (N, R, P) to the last of its R, shape (N, R); 0 where one is zero."""
    inner = (gradients @ gradients[:, -1, :, None])[..., 0].double()
    lengths = torch.linalg.vector_norm(gradients, dim=2).double()
    product = lengths * lengths[:, -1:]
    return torch.where(product > 0, inner / product, 0.0).clamp_(-1, 1)


def _together(model: nn.Module) -> tuple[int, int]:
    """Images that are taken at once, and how many points of them: all, unless one tensor is very large."""
    largest = max(part.numel() * part.element_size() for part in model.parameters())
    affordable = GRADIENT_BYTES // largest
    return max(1, min(TOGETHER, affordable // POINTS)), max(FEWEST_POINTS, min(POINTS, affordable))
