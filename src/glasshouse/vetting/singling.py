"""Signs in how much of each layer's gradient single images of the client make, one image at a time.

The measure is that of Garov et al., Hiding in plain sight (2024): of a layer's weights and a batch, with g_i
the gradient of image i,

    D-SNR = max |g_i| / (sum |g_i| - max |g_i|)

Above 1 one image makes more of the gradient than all others together, so the sum of the batch shows it. An
honest network that has learned its data reaches that too, wherever it gets one image wrong, as each layer's
gradient is proportional to the error p - e_y of the answer. What a crafted layer adds is that it passes the
error of some images on and stops that of others: here gradients are also compared per unit of the error.
"""

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.per_sample import LayerUse, SampleGradients
from glasshouse.models.freezing import exchanged
from glasshouse.models.loading import reinitialised
from glasshouse.models.shapes import Shape
from glasshouse.vetting.probing import cost_of
from glasshouse.vetting.signs import Sign

MOST, FEWEST, BATCH = 256, 32, 64
"""Images that are tried, and how many of them make a batch."""

BUDGET = 2e10
"""Multiplications that they may cost."""

TOGETHER = 16
"""Images whose gradients are in memory at once."""

CERTAIN = 1e-3
"""An error smaller than this is rounding, and says nothing of what the layers make of it."""

DOMINANT = 1.0
"""The D-SNR from which one image outweighs all others, as in the paper."""

GAINED, EFFECTIVE = 0.3, 0.2
"""The D-SNR per unit of the error, and the share of images, that honest models do not come near.

Over the models that thresholds were chosen on (see docs/vetting.md) they reached 0.09 and 0.56; these are
three times as far, rounded.
"""

BEYOND_FRESH = 3.0
"""Where the architecture with weights drawn anew comes near them by itself, as the deepest ones do, this many
times what it shows."""


@dataclass(frozen=True)
class LayerShares:
    """What single images make of one layer's gradient, the worst over batches.

    `dsnr` is D-SNR as defined above; `gained` the same per unit of the error; `effective` how many images
    carry the gradient per unit of the error, (sum g)^2 / sum g^2, as a share of the batch.
    """

    name: str
    dsnr: float
    gained: float
    effective: float


def single_signs(model: nn.Module, own: Images) -> Iterator[Sign]:
    """Layers whose gradient one image, or a few, would make nearly alone, on the client's `own` images."""
    shares = layer_shares(model, own)
    most, least = _bounds(model, own, shares)
    gate = "what it passes on of an error depends on the image, as in no honest layer"
    for share in shares:
        if share.gained > most:
            why = (
                f"for equal errors the gradient of one image is {_times(share.gained)} that of all others of "
                f"a batch together: {gate}"
            )
            yield Sign("single-image", share.name, why, alarming=True)
        elif share.effective < least:
            why = f"for equal errors {share.effective:.0%} of a batch's images carry its gradient: {gate}"
            yield Sign("few-images", share.name, why, alarming=True)
    worst = max(shares, key=lambda share: share.dsnr, default=None)
    if worst is not None and worst.dsnr > DOMINANT:
        why = (
            f"one of your images makes {_times(worst.dsnr)} as much of its gradient as all others of a batch "
            "(D-SNR); with an honest model that knows the others well the same happens, and shows that image"
        )
        yield Sign("dominant-image", worst.name, why, alarming=False)


def _bounds(model: nn.Module, own: Images, shares: list[LayerShares]) -> tuple[float, float]:
    """What `gained` may reach, and `effective` must, in this architecture."""
    if all(share.gained <= GAINED and share.effective >= EFFECTIVE for share in shares):
        return GAINED, EFFECTIVE
    try:
        fresh = layer_shares(reinitialised(model, seed=0), own)
    except BadInput:  # a layer of the user's own that cannot draw its weights anew
        return GAINED, EFFECTIVE
    gained = max((share.gained for share in fresh), default=0.0)
    effective = min((share.effective for share in fresh), default=1.0)
    return max(GAINED, BEYOND_FRESH * gained), min(EFFECTIVE, effective / BEYOND_FRESH)


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if math.isfinite(ratio) else "infinitely many times"


def tried_at_once(model: nn.Module, shape: Shape) -> int:
    """How many of the client's images the model's cost allows."""
    return max(FEWEST, min(MOST, int(BUDGET / max(cost_of(deepcopy(model).eval(), shape), 1))))


def layer_shares(model: nn.Module, own: Images) -> list[LayerShares]:
    """For each linear and convolutional layer of `model` that is trained; it is not changed.

    Batch norm takes the statistics of these images, as it would in training; dropout is off.
    """
    copy, x, y = deepcopy(model), own.x, own.y
    if len(x) < FEWEST:
        return []
    _take_statistics(copy, x)
    sent = exchanged(copy)
    for name, parameter in copy.named_parameters():
        parameter.requires_grad_(name in sent and name.endswith("weight") and parameter.ndim >= 2)
    with torch.no_grad():
        errors = copy(x).double().softmax(1) - F.one_hot(y, own.classes)
    error = errors.norm(dim=1)
    lengths = _lengths(copy, x, y)
    return [_shares(name, length.double(), error) for name, length in lengths.items()]


@torch.no_grad()
def _take_statistics(model: nn.Module, x: Tensor) -> None:
    """Let batch norm have the statistics of `x`, and put `model` into evaluation mode."""
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    model.eval()
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    if norms:
        model(x)
    model.eval()


def _lengths(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The length of each image's gradient by the weights of each layer, shape (N,)."""
    gradients = SampleGradients(model)
    parts: dict[str, list[Tensor]] = {}
    for some_x, some_y in zip(x.split(TOGETHER), y.split(TOGETHER)):
        for name, piece in gradients.pieces(some_x, some_y):
            length = _length(piece) if isinstance(piece, LayerUse) else piece.flatten(1).norm(dim=1)
            parts.setdefault(name.removesuffix(".weight"), []).append(length.detach())
    return {name: torch.cat(pieces) for name, pieces in parts.items()}


def _length(use: LayerUse) -> Tensor:
    """|sum_p d_p a_p'| over places p: by its square, sum_pq (d_p d_q)(a_p a_q), where that is less work."""
    a, d, layer = use.input, use.derivative, use.layer
    if isinstance(layer, nn.Conv2d) and layer.groups == 1 and not isinstance(layer.padding, str):
        d = d.flatten(2)
        if d.shape[2] ** 2 < layer.weight.numel():
            a = F.unfold(a, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
            squares: Tensor = ((d.mT @ d) * (a.mT @ a)).sum((1, 2))
            return squares.clamp_min(0).sqrt()
    if isinstance(layer, nn.Linear) and a.ndim == 2:
        return _norms(a) * _norms(d)
    return _norms(use.gradients())


def _norms(rows: Tensor) -> Tensor:
    lengths: Tensor = rows.flatten(1).norm(dim=1)
    return lengths


def _shares(name: str, lengths: Tensor, errors: Tensor) -> LayerShares:
    """Of one layer, from the lengths of gradients and of errors, (N,)."""
    dsnr, gained, effective = 0.0, 0.0, 1.0
    for length, error in zip(lengths.split(BATCH), errors.split(BATCH)):
        if len(length) < FEWEST:
            continue
        sure = error < CERTAIN
        gains = length[~sure] / error[~sure]
        dsnr = max(dsnr, largest_to_rest(length))
        if len(gains) >= FEWEST // 2:
            gained = max(gained, largest_to_rest(gains))
            squares = float(gains.square().sum())
            effective = min(effective, float(gains.sum()) ** 2 / squares / len(gains) if squares else 1.0)
    return LayerShares(name, dsnr, gained, effective)


def largest_to_rest(lengths: Tensor) -> float:
    """The largest over the sum of the others; infinite where they are zero, and 0 where all are.

    >>> largest_to_rest(torch.tensor([1.0, 3.0, 1.0]))
    1.5
    """
    largest = float(lengths.max())
    rest = float(lengths.sum()) - largest
    return 0.0 if not largest else largest / rest if rest > 0 else math.inf
