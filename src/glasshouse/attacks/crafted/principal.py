"""The directions in which latents vary most."""

import torch
from torch import Tensor

SPARE = 8
"""Directions beyond those asked for, which make the iteration converge fast."""

SWEEPS = 12


def principal_axes(latents: Tensor, count: int) -> Tensor:
    """The first `count` principal components of latents (N, d) as unit vectors, strongest first, (count, d).

    Found by subspace iteration: a few products with the latents instead of all d eigenvectors, which would
    take minutes where d is thousands.
    """
    centred = latents - latents.mean(0)
    width = latents.shape[1]
    start = torch.randn(width, min(count + SPARE, width), generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(start)[0]
    for _ in range(SWEEPS):
        basis = torch.linalg.qr(centred.T @ (centred @ basis))[0]
    inside = (centred @ basis).double()
    _, turn = torch.linalg.eigh(inside.T @ inside)
    axes: Tensor = (basis.double() @ turn).T.flip(0)[:count].contiguous()
    axes /= axes.norm(dim=1, keepdim=True)
    return axes
