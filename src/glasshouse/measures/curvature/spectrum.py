"""The Hessian's whole spectrum from a few random vectors: its trace and its density."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.curvature.krylov import Krylov
from glasshouse.measures.curvature.product import Hessian
from glasshouse.measures.estimate import Estimate, mean

POINTS, WIDTH = 2000, 0.01
"""Points of a density's grid, and the smoothing's standard deviation as a share of the spectrum's width."""


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


def _smooth(nodes: np.ndarray, weights: np.ndarray) -> Density:
    span = float(nodes.max() - nodes.min())
    # A spectrum in one point still needs a curve of some width.
    width = WIDTH * span or WIDTH * abs(float(nodes[0])) or WIDTH
    grid = np.linspace(nodes.min() - 6 * width, nodes.max() + 6 * width, POINTS)
    curves = np.exp(-0.5 * ((grid[:, None] - nodes) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    return Density(grid, curves @ weights)
