"""Lanczos iteration whose residual is known after every product."""

import numpy as np
import torch
from torch import Tensor

from glasshouse.measures.curvature.product import Operator

ROUNDING = 1e-6
"""Relative size of what float32 products leave undecided."""


class Krylov:
    """A growing orthonormal basis of span(v, Hv, H^2 v, ...) for a symmetric H of shape (P, P).

    Every new vector is made orthogonal to all before it, twice, and all coefficients are kept, so that
    H Q_k = Q_(k+1) C_k holds to rounding: eigenvalues and residuals come from the small matrix C_k, of shape
    (k + 1, k), without a further product. Where the space is exhausted a random direction continues it.
    """

    def __init__(self, operator: Operator, start: Tensor, rng: torch.Generator) -> None:
        self._operator = operator
        self._rng = rng
        self._basis = torch.empty(0, len(start))
        self._coefficients = np.zeros((1, 0))
        self._next = start / start.norm()

    @property
    def products(self) -> int:
        """How many products with H the basis has cost, k."""
        return self._coefficients.shape[1]

    @property
    def exhausted(self) -> bool:
        """Whether the basis spans everything."""
        return self.products == self._basis.shape[1]

    def extend(self) -> None:
        """Add a vector to the basis, at the cost of one product."""
        k = self.products
        if k == len(self._basis):
            room = torch.empty(max(8, 2 * k), self._basis.shape[1])
            room[:k] = self._basis[:k]
            self._basis = room
        self._basis[k] = self._next
        image = self._operator(self._next)
        rest, column = self._orthogonal(image, k + 1)
        below = float(rest.norm())
        grown = np.zeros((k + 2, k + 1))
        grown[: k + 1, :k] = self._coefficients
        grown[: k + 1, k] = column
        if below > ROUNDING * float(image.norm()):
            grown[k + 1, k] = below
            self._next = rest / below
        elif k + 1 < self._basis.shape[1]:
            fresh, _ = self._orthogonal(torch.randn(len(rest), generator=self._rng), k + 1)
            self._next = fresh / fresh.norm()
        self._coefficients = grown

    def ritz(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eigenvalues of H within the space, descending; their coordinates in columns; their residuals.

        The residual of the pair (lambda, v) is |Hv - lambda v|, with |v| = 1.
        """
        k = self.products
        square = self._coefficients[:k]
        values, coordinates = np.linalg.eigh((square + square.T) / 2)
        values, coordinates = values[::-1], coordinates[:, ::-1]
        residuals = self._coefficients @ coordinates
        residuals[:k] -= values * coordinates
        return values, coordinates, np.linalg.norm(residuals, axis=0)

    def vector(self, coordinates: np.ndarray) -> Tensor:
        """The unit vector with these coordinates, shape (k,), in the basis."""
        weights = torch.from_numpy(coordinates.copy()).to(self._basis.dtype)
        along = weights @ self._basis[: self.products]
        unit: Tensor = along / along.norm()
        return unit

    def _orthogonal(self, vector: Tensor, count: int) -> tuple[Tensor, np.ndarray]:
        """What `vector` has beyond the first `count` basis vectors, and its coordinates in them."""
        basis, rest, column = self._basis[:count], vector, np.zeros(count)
        for _ in range(2):  # the second time removes what rounding left the first time
            part = basis @ rest
            rest = rest - part @ basis
            column += part.double().numpy()
        return rest, column
