"""Images from the gradient of a first layer that is linear, with a bias, on the flattened image.

Neuron i has z_i = w_i x + b_i, so over a batch  dL/dw_i = sum_s k_si x_s  and  dL/db_i = sum_s k_si  with
k_si = dL/dz_i of sample s. For one sample the quotient is the image itself. Of a batch it is a mixture,
except where only one sample fires the neuron (k_si = 0 for all others, as behind a ReLU). Two neurons mix in
different ways, so a quotient that two of them share is an image. All this is linear in k: it holds for sums
over local steps, whatever their order, and over clients just as for one gradient.

Where k_si is a product of a factor of i and one of s, mixtures of the same samples agree too: behind one
hidden layer for two classes, and nearly so for samples of one class that an untrained network cannot tell
apart. Hence the agreement is asked for to the last digit, and mixtures of other images found are dropped.
"""

from copy import deepcopy

import numpy as np
import torch
from scipy.optimize import nnls
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from glasshouse.attacks.inversion.chain import random_image, watch
from glasshouse.errors import CannotRun

ALIKE = 1e-5
"""Quotients that differ by less than that per pixel, beyond their noise, are the same image."""

MIXED = 1e-3
"""Images that are nearer than that per pixel to a mixture of other images are mixtures."""

LONE = 1e-3
"""The relative residual up to which a gradient is that of one image, beyond its noise."""

CLEAR = 2e-3
"""Quotients with more noise than that per pixel are not looked at."""

MARGIN = 5 * CLEAR
"""How far outside [0, 1] noise may carry a pixel."""


def single_image(weight_gradient: Tensor, bias_gradient: Tensor, noise: float = 0.0) -> Tensor:
    """The input, shape (n,), behind  dL/dW = k x^T  and  dL/db = k,  shapes (m, n) and (m,).

    `noise` is the standard deviation of an entry. Raises `CannotRun` where no single input explains them.

    >>> k, x = torch.tensor([2.0, -1.0, 0.0]), torch.tensor([0.5, 0.25])
    >>> single_image(torch.outer(k, x), k)
    tensor([0.5000, 0.2500])
    """
    if not bias_gradient.any():
        raise CannotRun("no neuron of the first layer has a gradient")
    x = weight_gradient.T @ bias_gradient / bias_gradient.square().sum()
    residual = weight_gradient - torch.outer(bias_gradient, x)
    limit = LONE * float(weight_gradient.square().mean().sqrt()) + 5 * noise * (1 + float(x.abs().max()))
    if float(residual.square().mean().sqrt()) > limit:
        raise CannotRun("no single image explains the first layer's gradient: something else was added to it")
    return x


def lone_images(weight_gradient: Tensor, bias_gradient: Tensor, most: int, noise: float = 0.0) -> Tensor:
    """The images, shape (K, n), K <= `most`, that two or more neurons agree on, most neurons first.

    `noise` is the standard deviation of an entry of the gradients, shapes (m, n) and (m,).
    """
    W, b = weight_gradient.double(), bias_gradient.double()
    spread = noise / b.abs().clamp_min(1e-300)
    # Where all of a neuron's weights were pruned, its quotient is black: no image.
    clear = (b.abs() > 1e-12 * b.abs().max()) & (spread < CLEAR) & W.any(1)
    W, b, spread = W[clear], b[clear], spread[clear]
    quotients = W / b[:, None]
    inside = ((quotients > -MARGIN) & (quotients < 1 + MARGIN)).all(1)
    quotients, b, spread = quotients[inside], b[inside], spread[inside]
    groups = _agreeing(quotients, spread)
    images = [(quotients[g] * b[g, None].square()).sum(0) / b[g].square().sum() for g in groups]
    return _unmixed(torch.stack(images))[:most] if images else quotients[:0]


def find_leading_linear(network: nn.Module, shape: tuple[int, int, int]) -> str:
    """The name of the linear layer that reads the flattened image, or `CannotRun` where there is none."""
    probe = random_image(shape)
    with torch.no_grad():
        steps, _ = watch(deepcopy(network).double().eval(), probe)
    first = next((step for step in steps if list(step.module.parameters(recurse=False))), None)
    if first is None or not isinstance(first.module, nn.Linear):
        kind = "nothing" if first is None else type(first.module).__name__
        raise CannotRun(f"the network begins with {kind}, not with a linear layer")
    if not torch.equal(first.x, probe.flatten(1)):
        raise CannotRun(f"the linear layer {first.name!r} reads something other than the flattened image")
    if first.module.bias is None:
        raise CannotRun(f"the linear layer {first.name!r} has no bias")
    return first.name


def _unmixed(images: Tensor) -> Tensor:
    """Those of the images, shape (K, n), that are no mixture of others."""
    rows = images.numpy()
    kept = list(range(len(rows)))
    for place in range(len(rows)):
        others = [other for other in kept if other != place]
        if others and nnls(rows[others].T, rows[place])[1] < MIXED * rows.shape[1] ** 0.5:
            kept = others
    return images[kept]


def _agreeing(quotients: Tensor, spread: Tensor) -> list[np.ndarray]:
    """Groups of two or more rows that are the same image, the largest first."""
    count = len(quotients)
    if count < 2:
        return []
    distances = torch.cdist(quotients, quotients) / quotients.shape[1] ** 0.5
    limits = ALIKE + (spread[:, None].square() + spread[None, :].square()).sqrt()
    first, second = np.nonzero((distances <= limits).numpy())
    links = coo_array((np.ones(len(first)), (first, second)), shape=(count, count))
    _, group = connected_components(links, directed=False)
    groups = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    return sorted((rows for rows in groups if len(rows) > 1), key=len, reverse=True)
