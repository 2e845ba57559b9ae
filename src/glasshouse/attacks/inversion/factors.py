"""The factors of a layer's gradient: how many samples it mixes, and a basis in which to look for them."""

import torch
from torch import Tensor

from glasshouse.attacks.inversion.sparse_columns import ROUNDING, Factors
from glasshouse.errors import CannotRun

GAP = 100.0
"""How far the singular values must fall, at least, from the last of the samples to the first of the noise."""

NOISY_ROW = 30.0
"""A neuron with that many times the usual share of noise in its gradient says nothing."""

ISOTROPY_STEPS = 10


def factorise(gradient: Tensor, layer: Tensor) -> Factors:
    """The factors of `gradient`, shape (neurons, inputs + 1), of a `layer` of that shape.

    The rank is where the singular values fall most steeply. What is left is noise, and so is as much of the
    rest in every direction.
    """
    if not torch.isfinite(gradient).all():
        raise CannotRun("the gradient of the layer is not finite")
    seen = gradient.abs().sum(0) > 0
    live = gradient.abs().sum(1) > 0
    if not live.any() or not seen[-1]:
        raise CannotRun("the layer has no gradient: no sample moved it")
    outer, sizes, inner = torch.linalg.svd(gradient[live][:, seen], full_matrices=False)
    rank = _numerical_rank(sizes)
    left, rest = outer[:, :rank] * sizes[:rank], (outer[:, rank:] * sizes[rank:]).norm(dim=1)
    share = rest / left.norm(dim=1)
    clear = share <= NOISY_ROW * share.median() + ROUNDING
    if int(clear.sum()) < rank:
        raise CannotRun(f"only {int(clear.sum())} neurons have a clear gradient, for a rank of {rank}")
    live[live.clone()] = clear
    unit, basis = _isotropic(left[clear])
    right = gradient.new_zeros(rank, gradient.shape[1])
    right[:, seen] = torch.linalg.solve(basis, inner[:rank])
    left = left[clear] @ basis
    noise = rest[clear] / (left.norm(dim=1) * max(1, int(seen.sum()) - rank) ** 0.5)
    noise_share = (rest.norm() / sizes.norm()).item()
    return Factors(live, left, unit, right, layer[live] @ right.T, noise, basis, noise_share)


def _numerical_rank(sizes: Tensor) -> int:
    """How many of the descending singular values count."""
    floor = sizes[0] * torch.finfo(sizes.dtype).eps
    falls = sizes[:-1].clamp_min(floor) / sizes[1:].clamp_min(floor)
    if not len(falls) or falls.max() < GAP:
        raise CannotRun(
            f"the layer's gradient, of {len(sizes)} neurons or inputs that count, has full rank: it holds "
            "more samples than that, several steps, or noise"
        )
    return int(falls.argmax()) + 1


def _isotropic(left: Tensor) -> tuple[Tensor, Tensor]:
    """The basis in which the rows of `left`, scaled to length 1, point everywhere alike; those rows first."""
    basis = torch.eye(left.shape[1], dtype=left.dtype)
    rows = left
    for _ in range(ISOTROPY_STEPS):
        rows = rows / rows.norm(dim=1, keepdim=True)
        rows, sizes, inner = torch.linalg.svd(rows, full_matrices=False)
        basis = basis @ (inner.T / sizes)
    return rows / rows.norm(dim=1, keepdim=True), basis
