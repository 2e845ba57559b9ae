"""The spectrum of the Hessian of a model's mean loss: its largest eigenvalues, its trace and its density."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.curvature.krylov import ROUNDING, Krylov
from glasshouse.measures.curvature.product import Hessian
from glasshouse.measures.estimate import Estimate, mean

UNCONVERGED = "a lower bound: Lanczos stopped after {} products at a relative residual of {:.1g}"

POINTS, WIDTH = 2000, 0.01
"""Points of a density's grid, and the smoothing's standard deviation as a share of the spectrum's width."""


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
    if count < 1:
        raise BadInput(f"count {count}: the number of eigenvalues must be at least 1")
    if not 0 < tolerance < 1:
        raise BadInput(f"tolerance {tolerance:g}: the relative residual to reach must lie between 0 and 1")
    if most < count:
        raise BadInput(f"most {most}: {count} eigenvalues take at least as many products; raise it")
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
    top = values[:count]
    with np.errstate(divide="ignore", invalid="ignore"):  # a Hessian of zeros has no relative residual
        relative = float(np.where(residuals[:count] > 0, residuals[:count] / abs(top), 0.0).max())
    per_image = hessian.along(krylov.vector(coordinates[:, 0])).double().numpy()
    note = None if settled else UNCONVERGED.format(krylov.products, relative)
    return Eigenvalues(
        values=tuple(float(value) for value in top),
        residual=relative,
        products=krylov.products,
        converged=settled,
        estimate=_over_images(float(top[0]), per_image, note),
    )


@dataclass(frozen=True, eq=False)
class Density:
    """How many eigenvalues lie where: a density `values` over eigenvalues `grid`, both of shape (G,)."""

    grid: np.ndarray
    values: np.ndarray


def trace(model: nn.Module, images: Images, *, probes: int = 30, seed: int = 0) -> Estimate:
    """The trace of the Hessian of the mean loss, with its 95% interval over the draw of the probes.

    Hutch++ (Meyer et al. 2021), which takes `probes` products: a third of them find the directions in which
    the Hessian is large, a third give its trace there, and a third estimate the rest, the mean of g'Hg over
    random signs g that are orthogonal to those directions.
    """
    if probes < 6:
        raise BadInput(f"probes {probes}: an interval needs at least 6; raise it")
    hessian = Hessian(model, images)
    rng = torch_rng(seed, "curvature")
    directions = min(probes // 3, hessian.size)
    signs = torch.randint(2, (probes - directions, hessian.size), generator=rng) * 2.0 - 1
    sketch = torch.stack([hessian(row) for row in signs[:directions]], dim=1)
    basis = torch.linalg.qr(sketch.double()).Q.float()
    large = sum(float(column @ hessian(column)) for column in basis.T.contiguous())
    traces = []
    for row in signs[directions:]:
        beyond = row - basis @ (basis.T @ row)
        traces.append(large + float(beyond @ hessian(beyond)))
    return mean(traces)


def density(model: nn.Module, images: Images, *, probes: int = 5, steps: int = 30, seed: int = 0) -> Density:
    """The density of the eigenvalues of the Hessian of the mean loss, by stochastic Lanczos quadrature.

    Each of `probes` random vectors takes `steps` products and gives eigenvalues with weights; normal curves
    of a hundredth of the spectrum's width, in their places, add up to the density.
    """
    if probes < 1 or steps < 1:
        raise BadInput(f"probes {probes} and steps {steps}: both must be at least 1")
    hessian = Hessian(model, images)
    rng = torch_rng(seed, "curvature")
    nodes, weights = [], []
    for _ in range(probes):
        krylov = Krylov(hessian, torch.randn(hessian.size, generator=rng), rng)
        while krylov.products < steps and not krylov.exhausted:
            krylov.extend()
        values, coordinates, _ = krylov.ritz()
        nodes.append(values)
        weights.append(coordinates[0] ** 2 / probes)
    return _smooth(np.concatenate(nodes), np.concatenate(weights))


def _start(hessian: Hessian, rng: torch.Generator) -> Tensor:
    """Where Lanczos begins: the gradient, which saves one or two products, and noise three times as long.

    The gradient lies mostly along the largest eigenvectors, but may be orthogonal to the first; noise is not.
    """
    noise = torch.randn(hessian.size, generator=rng)
    gradient = hessian.gradient()
    start: Tensor = 3 * noise / noise.norm()
    return start.add_(gradient / gradient.norm().clamp(min=torch.finfo(torch.float32).tiny))


def _over_images(value: float, per_image: np.ndarray, note: str | None) -> Estimate:
    """`value` with its interval over the draw of the images, to first order.

    Other images perturb the Hessian, and a perturbation E moves an eigenvalue by v'Ev: the mean over the
    images of v' H_i v (`per_image`) moves as the eigenvalue does.
    """
    if len(per_image) < 2:
        return Estimate(value, None, None, len(per_image), note)
    half = 1.96 * float(per_image.std(ddof=1)) / len(per_image) ** 0.5
    return Estimate(value, value - half, value + half, len(per_image), note)


def _smooth(nodes: np.ndarray, weights: np.ndarray) -> Density:
    span = float(nodes.max() - nodes.min())
    # A spectrum in one point still needs a curve of some width.
    width = WIDTH * span or WIDTH * abs(float(nodes[0])) or WIDTH
    grid = np.linspace(nodes.min() - 6 * width, nodes.max() + 6 * width, POINTS)
    curves = np.exp(-0.5 * ((grid[:, None] - nodes) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    return Density(grid, curves @ weights)
