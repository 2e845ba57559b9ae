"""The largest eigenvalues of the Hessian of a model's mean loss."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.curvature.krylov import ROUNDING, Krylov
from glasshouse.measures.curvature.product import Hessian
from glasshouse.measures.estimate import Estimate

UNCONVERGED = "a lower bound: Lanczos stopped after {} products at a relative residual of {:.1g}"


@dataclass(frozen=True)
class Eigenvalues:
    """The algebraically largest eigenvalues, descending, and how far they can be trusted.

    `residual` is the worst |Hv - lambda v| / |lambda| of them, `products` how many Hessian-vector products
    were taken. `estimate` is the largest with its 95% interval over the draw of the images.
    """

    values: tuple[float, ...]
    residual: float
    products: int
    converged: bool
    estimate: Estimate


def top_eigenvalues(
    model: nn.Module,
    images: Images,
    *,
    count: int = 1,
    tolerance: float = 1e-3,
    most: int = 100,
    seed: int = 0,
) -> Eigenvalues:
    """The `count` largest eigenvalues of the Hessian of the mean cross-entropy over `images`.

    The Hessian is that in all parameters, frozen ones too, in eval mode; `model` is not changed. Lanczos
    stops at the first product after which every residual is within `tolerance`, or after `most` products.
    """
    _check(count, tolerance, most)
    hessian = Hessian(model, images)
    if count > hessian.size:
        raise BadInput(f"count {count}: the model has only {hessian.size} parameters; ask for at most that")
    rng = torch_rng(seed, "curvature")
    krylov = Krylov(hessian, _start(hessian, rng), rng)
    settled = False
    while not settled and krylov.products < most and not krylov.exhausted:
        krylov.extend()
        values, coordinates, residuals = krylov.ritz()
        allowed = np.maximum(tolerance * abs(values[:count]), ROUNDING * abs(values).max())
        settled = krylov.products >= count and bool((residuals[:count] <= allowed).all())
    top, relative = values[:count], _relative(residuals[:count], values[:count])
    per_image = hessian.along(krylov.vector(coordinates[:, 0])).double().numpy()
    note = None if settled else UNCONVERGED.format(krylov.products, relative)
    return Eigenvalues(
        values=tuple(float(value) for value in top),
        residual=relative,
        products=krylov.products,
        converged=settled,
        estimate=_over_images(float(top[0]), per_image, note),
    )


def _start(hessian: Hessian, rng: torch.Generator) -> Tensor:
    """Where Lanczos begins: the gradient, which saves one or two products, and noise three times as long.

    The gradient lies mostly along the largest eigenvectors, but may be orthogonal to the first; noise is not.
    """
    noise = torch.randn(hessian.size, generator=rng)
    gradient = hessian.gradient()
    start: Tensor = 3 * noise / noise.norm()
    return start.add_(gradient / gradient.norm().clamp(min=torch.finfo(torch.float32).tiny))


def _relative(residuals: np.ndarray, values: np.ndarray) -> float:
    """The worst residual relative to its eigenvalue; 0 for a Hessian of zeros."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(residuals > 0, residuals / abs(values), 0.0).max())


def _over_images(value: float, per_image: np.ndarray, note: str | None) -> Estimate:
    """`value` with its interval over the draw of the images, to first order.

    Other images perturb the Hessian, and a perturbation E moves an eigenvalue by v'Ev: the mean over the
    images of v' H_i v (`per_image`) moves as the eigenvalue does.
    """
    if len(per_image) < 2:
        return Estimate(value, None, None, len(per_image), note)
    half = 1.96 * float(per_image.std(ddof=1)) / len(per_image) ** 0.5
    return Estimate(value, value - half, value + half, len(per_image), note)


def _check(count: int, tolerance: float, most: int) -> None:
    if count < 1:
        raise BadInput(f"count {count}: the number of eigenvalues must be at least 1")
    if not 0 < tolerance < 1:
        raise BadInput(f"tolerance {tolerance:g}: the relative residual to reach must lie between 0 and 1")
    if most < count:
        raise BadInput(f"most {most}: {count} eigenvalues take at least as many products; raise it")
