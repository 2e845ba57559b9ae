"""The samples found so far behind a low-rank gradient, and what they say about those that are missing."""

import torch
from torch import Tensor

from glasshouse.attacks.inversion.sparse_columns import Factors, distinct

MIXED = 1e-3
"""A row with less of its length left holds no sample but those found."""

MIXTURES = 300
"""Guesses mixed from two others at a time."""

PARALLEL = 1e-2
"""A sample and a column with a smaller cosine have nothing to do with each other."""

CHANCE = 0.01
"""The share of neurons at which a sample may contradict its column by chance; a mixture does at many more."""

ESTIMATE_ROUNDS = 3
REGRESSION_STEPS = 15


class FoundSamples:
    """The columns found so far, and an estimate of the sample of each.

    `columns`, shape (K, b), are exact; `estimates`, shape (K, b), become so with the last of the columns. A
    sample and its column may disagree about a share `turned` of the neurons.
    """

    def __init__(self, factors: Factors, turned: float = 0.0) -> None:
        self._factors, self._bearable = factors, max(CHANCE, turned) * len(factors.left)
        self.columns = self.estimates = factors.left.new_empty(0, factors.samples)
        self._refused = self.columns
        self._idle = 0
        if factors.samples == 1:
            self.columns = factors.left.new_ones(1, 1)
            self.estimates = factors.as_samples(self.columns)

    @property
    def complete(self) -> bool:
        return len(self.columns) == self._factors.samples

    @property
    def consistent(self) -> bool:
        """Whether nothing is missing, and every sample has the signs that its column has."""
        return self.complete and not self._doubtful().any()

    def drop_doubtful(self) -> None:
        """Refuse, of the samples that contradict their columns, the one whose column is the least sparse.

        A mixture of columns among them spoils the samples that it mixes, and no others.
        """
        zeros = self._factors.silent(self.columns).sum(1)
        doubtful = int(zeros.masked_fill(~self._doubtful(), len(self._factors.left) + 1).argmin())
        kept = torch.arange(len(self.columns)) != doubtful
        self._refused = torch.cat([self._refused, self.columns[~kept]])
        self.columns, self.estimates = self.columns[kept], self.estimates[kept]

    def guesses(self, rng: torch.Generator) -> Tensor:
        """Guesses at the samples that are missing: the gradient's rows without those that were found.

        Where they led to nothing, mixtures of two of them, and the rows themselves, take turns with them.
        """
        rest = self._remainders()
        if self._idle % 3 == 1:
            pairs = torch.randint(len(rest), (2, MIXTURES), generator=rng)
            shares = 1.5 * torch.rand(MIXTURES, 1, generator=rng, dtype=rest.dtype) - 0.25
            rest = shares * rest[pairs[0]] + (1 - shares) * rest[pairs[1]]
        elif self._idle % 3 == 2:
            rest = self._factors.as_samples(self._factors.left)
        return rest

    def learn(self, columns: Tensor) -> None:
        """Add those of the sound `columns`, shape (K, b), that are new."""
        rest, known = self._remainders(), len(self.columns)
        excluded = torch.cat([self._refused, self.columns])
        fresh = distinct(torch.cat([excluded, columns]))[len(excluded) :]
        self.columns = torch.cat([self.columns, fresh])[: self._factors.samples]
        self._idle = 0 if len(self.columns) > known else self._idle + 1
        if len(self.columns) > known:
            self._estimate(rest)
        if len(self.columns) == self._factors.samples - 1 and not self._doubtful().any():
            self._add_last()

    def _add_last(self) -> None:
        """Add the only column that is orthogonal to all samples but its own; no zeros are needed for it."""
        last = torch.linalg.svd(self.estimates)[2][-1:]
        if len(distinct(torch.cat([self._refused, last]))) > len(self._refused):
            self.columns = torch.cat([self.columns, last])
            self.estimates = torch.linalg.inv(self.columns.T)
            self.estimates = self.estimates / (self.estimates @ self._factors.right[:, -1:])

    def _doubtful(self) -> Tensor:
        """Which samples contradict their columns, bool of shape (K,)."""
        activations = self.estimates @ self._factors.response.T
        contradictions = self._factors.contradictions(activations, ~self._factors.silent(self.columns))
        doubtful: Tensor = contradictions.sum(1) > self._bearable
        return doubtful

    def _remainders(self) -> Tensor:
        """The rows of the gradient less what the samples found have in them, scaled to samples."""
        left = self._factors.left
        rest = left - left @ self._scaled_columns().T @ self.estimates
        rest = rest[rest.norm(dim=1) > MIXED * left.norm(dim=1)]
        return self._factors.as_samples(rest if len(rest) else left)

    def _scaled_columns(self) -> Tensor:
        """The columns, scaled so that each has the product 1 with its sample."""
        return self.columns / (self.columns * self.estimates).sum(1, keepdim=True)

    def _estimate(self, rest: Tensor) -> None:
        """Choose, for each column, the sample whose pre-activations have the signs that the column has."""
        factors, before = self._factors, self.estimates
        pool = torch.cat([factors.as_samples(factors.left), rest])
        signs = (pool @ factors.response.T > 0).to(pool.dtype)
        fires = (~factors.silent(self.columns)).to(pool.dtype)
        agreement = signs @ fires.T + (1 - signs) @ (1 - fires).T
        agreement[~_meets(pool[:, None], self.columns[None])] = -1
        self.estimates = pool[agreement.argmax(0)]
        self._prefer(torch.cat([before, self.estimates[len(before) :]]))
        for _ in range(ESTIMATE_ROUNDS):
            self._prefer(self._biorthogonal())
            self._prefer(self._regressed())
        self.estimates = self._biorthogonal()

    def _prefer(self, others: Tensor) -> None:
        """Take those of the `others`, shape (K, b), that agree with their columns at least as well."""
        ones = others @ self._factors.right[:, -1]
        others = torch.where(ones[:, None] == 0, self.estimates, others / ones[:, None])
        fires = ~self._factors.silent(self.columns)
        now, then = (((p @ self._factors.response.T > 0) == fires).sum(1) for p in (self.estimates, others))
        better = (then >= now) & _meets(others, self.columns)
        self.estimates = torch.where(better[:, None], others, self.estimates)

    def _biorthogonal(self) -> Tensor:
        """The nearest estimates whose product with every other sample's column is 0, as those of X are."""
        columns = self._scaled_columns().T
        excess = self.estimates @ columns - torch.eye(columns.shape[1], dtype=columns.dtype)
        nearest: Tensor = self.estimates - excess @ torch.linalg.pinv(columns)
        return nearest

    def _regressed(self) -> Tensor:
        """The samples that explain the gradient's rows by the columns found, rows of missing samples aside.

        Iteratively reweighted least squares, with the length of a row's residual as its loss.
        """
        left, estimates = self._factors.left, self.estimates
        columns, lengths = left @ self._scaled_columns().T, left.norm(dim=1)
        for step in range(REGRESSION_STEPS):
            floor = 0.3 * (1e-6 / 0.3) ** (step / (REGRESSION_STEPS - 1))
            residual = (left - columns @ estimates).norm(dim=1) / lengths
            weights = 1 / (lengths * (residual.square() + floor**2) ** 0.25)
            weighted = weights[:, None] * columns
            normal = weighted.T @ weighted
            normal += 1e-10 * normal.diagonal().mean() * torch.eye(len(normal), dtype=normal.dtype)
            estimates = torch.linalg.solve(normal, weighted.T @ (weights[:, None] * left))
        regressed: Tensor = estimates
        return regressed


def _meets(p: Tensor, q: Tensor) -> Tensor:
    """Whether sample p has a part in column q: their product is not all but zero."""
    meets: Tensor = (p * q).sum(-1).abs() > PARALLEL * p.norm(dim=-1) * q.norm(dim=-1)
    return meets
