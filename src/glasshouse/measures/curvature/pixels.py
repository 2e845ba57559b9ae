"""How curved each image's loss is in its pixels."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.curvature.krylov import ROUNDING
from glasshouse.measures.curvature.product import (
    OVERFLOW,
    Operator,
    check_gradient,
    differentiable,
    frozen_copy,
)

CHUNK = 250
"""Images whose curvature is computed at once."""


def input_curvature(
    model: nn.Module, images: Images, *, tolerance: float = 1e-3, most: int = 50, seed: int = 0
) -> np.ndarray:
    """The largest eigenvalue of the Hessian of each image's own loss in its pixels, shape (N,).

    In eval mode no image touches another, so one product of the summed loss's Hessian serves every image:
    Lanczos runs on all at once, until each has a residual within `tolerance` of its eigenvalue, or for
    `most` products; a value that is not settled by then is a lower bound.
    """
    if not 0 < tolerance < 1 or most < 1:
        raise BadInput(
            f"tolerance {tolerance:g} and most {most}: the first must lie between 0 and 1, the second above 0"
        )
    network = laid_out(frozen_copy(model, images)).eval().requires_grad_(False)
    rng = torch_rng(seed, "pixels")
    parts = []
    for x, y in zip(images.x.split(CHUNK), images.y.split(CHUNK)):
        start = torch.randn(x.shape, generator=rng, dtype=torch.float64).flatten(1)
        parts.append(_largest(_pixel_hessian(network, x, y), start, tolerance, most))
    return np.concatenate(parts)


def _pixel_hessian(network: nn.Module, x: Tensor, y: Tensor) -> Operator:
    """The map from vectors, shape (N, pixels), to each image's Hessian times its vector, the same shape."""
    x = channels_last(x).detach().requires_grad_(True)
    with differentiable():
        logits = network(x)
        check_gradient(logits, "pixels")
        loss = F.cross_entropy(logits, y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    if not gradient.isfinite().all():
        raise BadInput(OVERFLOW)

    def product(vectors: Tensor) -> Tensor:
        direction = channels_last(vectors.float().view(x.shape))
        (image,) = torch.autograd.grad(gradient, x, direction, retain_graph=True, materialize_grads=True)
        return image.flatten(1).double()

    return product


def _largest(operator: Operator, start: Tensor, tolerance: float, most: int) -> np.ndarray:
    """Lanczos for N matrices at once, with full orthogonalisation: each one's largest eigenvalue, (N,)."""
    n, size = start.shape
    basis = torch.empty(n, 0, size, dtype=torch.float64)
    small = torch.empty(n, 0, 0, dtype=torch.float64)
    vector = start / start.norm(dim=1, keepdim=True)
    largest, settled = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.bool)
    for k in range(1, min(most, size) + 1):
        basis = torch.cat([basis, vector[:, None]], dim=1)
        image = operator(vector)
        column = torch.einsum("nkd,nd->nk", basis, image)
        rest = image - torch.einsum("nk,nkd->nd", column, basis)
        rest = rest - torch.einsum("nk,nkd->nd", torch.einsum("nkd,nd->nk", basis, rest), basis)
        below = rest.norm(dim=1)
        grown = torch.zeros(n, k, k, dtype=torch.float64)
        grown[:, : k - 1, : k - 1] = small
        grown[:, k - 1, :] = grown[:, :, k - 1] = column
        small = grown
        values, vectors = torch.linalg.eigh(small)
        residuals = below * vectors[:, -1, -1].abs()
        allowed = torch.maximum(tolerance * values[:, -1].abs(), ROUNDING * values.abs().amax(1))
        largest = torch.where(settled, largest, values[:, -1])
        settled |= residuals <= allowed
        if settled.all():
            break
        vector = rest / below.clamp(min=torch.finfo(torch.float64).tiny)[:, None]
    return largest.numpy()
