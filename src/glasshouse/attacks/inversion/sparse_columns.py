"""The sparse columns behind a low-rank gradient: which combinations of its factors are one sample's own.

A linear layer before a ReLU has the gradient D X, where D, shape (neurons, samples), is zero wherever a
sample does not fire a neuron, and the rows of X are the samples, a 1 for the bias after each. A factorisation
L R of that gradient has D = L Q and X = Q^-1 R for an unknown invertible Q. A row p of Q^-1 is a sample, a
column q of Q what flows back through it, and the two see the same neurons: where the pre-activation of p is
negative, L q is zero. So a guess at p says which rows of L its q is orthogonal to, and a guess that is right
about as many neurons as there are samples gives q exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST_SUBSPACE = 10
"""The rows a guess is surest of leave q this many dimensions or fewer; draws of other rows fix the rest."""

SURE = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.45, 1.6, 1.8, 2.0)
"""How many rows a guess is trusted with, in multiples of the number of samples."""

TEMPERATURES = (0.1, 0.3, 0.6)
"""How far draws stray from the rows a guess is surest of, in mean pre-activations."""

DRAWS = 14
"""Draws at each temperature for each guess."""

SPARE = 3
"""Zeros that a column has beyond those that any vector can be given."""

SINGULAR = 1e-5
"""Singular values below that share of the largest are zero, whatever the noise."""

NOISY = 5.0
"""And so are those up to that many times what the noise alone would make of them."""

SAME = 1e-2
"""Unit columns that differ by less are one: the noise keeps apart what different rows say of it."""

ROUNDING = 1e-11
"""What double precision makes of a zero, at most."""

DEVIATIONS = 20.0
"""How many standard deviations of the noise a zero may be off."""

UNDECIDED = 1e3
"""Pre-activations this many times the noise in the gradient, or smaller, have no sign."""

POLISHINGS = 3
"""How often a column is fitted to its zeros, and they to it."""

SLACK = 30.0
"""How much farther off it may be for a column that was fitted to a few rows only."""


@dataclass(frozen=True, eq=False)
class Factors:
    """A gradient of rank `samples` as `left @ right`, for the neurons that `live`, a mask of all, marks.

    Neurons without any gradient are left out, and those whose gradient is mostly noise.

    `left`, shape (neurons, samples), is in a basis in which its rows, scaled to length 1, point everywhere
    alike: these are `unit`. `right` has shape (samples, inputs + 1), with the bias gradient's column last.
    `response @ p` are the pre-activations of the sample p, `response` of shape (neurons, samples). The noise
    of an entry of `unit @ q` has the standard deviation `noise`, shape (neurons,), times |`basis` q|; as a
    share of the whole gradient it is `noise_share`.
    """

    live: Tensor
    left: Tensor
    unit: Tensor
    right: Tensor
    response: Tensor
    noise: Tensor
    basis: Tensor
    noise_share: float

    @property
    def samples(self) -> int:
        return self.left.shape[1]

    def as_samples(self, p: Tensor) -> Tensor:
        """The rows of `p`, shape (K, samples), scaled so that the 1 after each sample is one."""
        ones = p @ self.right[:, -1]
        return p[ones != 0] / ones[ones != 0, None]

    def contradictions(self, activations: Tensor, fires: Tensor) -> Tensor:
        """Where pre-activations and what flows back, bool, say different things; both (K, neurons).

        Pre-activations that the noise could have turned say nothing.
        """
        margin = (UNDECIDED * self.noise_share + ROUNDING) * activations.abs().mean()
        return ((activations > 0) != fires) & (activations.abs() > margin)

    def silent(self, q: Tensor, slack: float = 1.0) -> Tensor:
        """Which neurons the unit columns `q`, shape (K, samples), do not flow through; (K, neurons)."""
        deviations = (q @ self.basis.T).norm(dim=1)[:, None] * self.noise
        silent: Tensor = (q @ self.unit.T).abs() < slack * (DEVIATIONS * deviations + ROUNDING)
        return silent


def columns_of_guesses(factors: Factors, guesses: Tensor, rng: torch.Generator) -> Tensor:
    """The unit columns that `guesses` at samples lead to, shape (K, samples); every one of them is sound."""
    activations = guesses @ factors.response.T
    activations = activations / activations.abs().mean(1, keepdim=True)
    drawn = [torch.empty(0, factors.samples, dtype=factors.left.dtype)]
    for chosen, basis in _subspaces(factors, activations):
        drawn += _drawn_columns(factors, activations[chosen], basis, rng)
    return sound_columns(factors, torch.cat(drawn))


def columns_of_random_rows(factors: Factors, draws: int, rng: torch.Generator) -> Tensor:
    """The unit columns orthogonal to rows drawn blindly, as SPEAR has it; shape (K, samples), all sound."""
    basis = torch.eye(factors.samples, dtype=factors.left.dtype).expand(draws, -1, -1)
    indifferent = torch.zeros(draws, len(factors.left), dtype=factors.left.dtype)
    return sound_columns(factors, _draw(factors, indifferent, basis, basis.new_ones(()), rng))


def sound_columns(factors: Factors, q: Tensor) -> Tensor:
    """Those of the unit columns `q` that must be a sample's own, each once and polished, sparsest first.

    A mixture of several samples' columns is zero where all of them are, and on one more row for each weight
    that it can choose; without that row the mixture would be free. Of thousands of mixtures some pass another
    row for zero by chance. So a column is sound where its zeros leave no other column, and would not if any
    two of them were missing.
    """
    silent = factors.silent(q, SLACK)
    silent = silent[silent.sum(1) >= factors.samples - 1 + SPARE]
    silent = torch.unique(silent, dim=0)
    silent = silent[silent.sum(1).argsort(descending=True, stable=True)]
    silent = silent[: 200 + 4 * factors.samples]
    polished = [column for rows in silent if (column := _sound_column(factors, rows)) is not None]
    return distinct(torch.stack(polished)) if polished else q[:0]


def distinct(q: Tensor) -> Tensor:
    """The unit columns `q`, shape (K, samples), without those that an earlier one equals but for its sign."""
    alike = ((q @ q.T).abs() > 1 - SAME**2 / 2).triu(1)
    return q[~alike.any(0)]


def _sound_column(factors: Factors, silent: Tensor) -> Tensor | None:
    """The column that is zero at the `silent` neurons, bool of shape (neurons,), where it is sound.

    A column of few rows passes others for zero that are not, which bend it; so its zeros are found anew.
    """
    column = _only_column(factors, silent)
    for _ in range(POLISHINGS):
        if column is None:
            return None
        silent = factors.silent(column[None])[0]
        column = _only_column(factors, silent) if silent.sum() >= factors.samples - 1 + SPARE else None
    return column


def _only_column(factors: Factors, silent: Tensor) -> Tensor | None:
    """The unit vector orthogonal to the `silent` rows, where it is sound."""
    outer, sizes, inner = torch.linalg.svd(factors.unit[silent], full_matrices=False)
    noise = factors.noise[silent].norm() * (inner @ factors.basis.T).norm(dim=1)
    rank = int((sizes > torch.maximum(SINGULAR * sizes[0], NOISY * noise)).sum())
    if rank != factors.samples - 1:
        return None
    column: Tensor = inner[-1]
    return column if _spares_any_two(outer[:, :rank]) else None


def _spares_any_two(span: Tensor) -> bool:
    """Whether rows keep their rank without any two of them; `span`, shape (n, rank), is orthonormal.

    Without rows i and j the rank falls where I - `span` `span`^T has dependent rows i and j.
    """
    spare = torch.eye(len(span), dtype=span.dtype) - span @ span.T
    share = spare.diagonal()
    if (share < SINGULAR).any():
        return False
    dependence = spare.square() / torch.outer(share, share)
    return bool((dependence.fill_diagonal_(0) < 1 - SINGULAR).all())


def _subspaces(factors: Factors, activations: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Where q can still lie when the rows that a guess is surest of are believed.

    Of each guess as few rows are believed as leave `LARGEST_SUBSPACE` dimensions. Yields guesses, shape (g,),
    and the bases of their subspaces, shape (g, samples, dimensions), for each number of dimensions.
    """
    surest_first = activations.argsort(1)
    waiting = torch.arange(len(activations))
    for believed in sorted({max(1, round(share * factors.samples)) for share in SURE}):
        if not len(waiting) or believed >= len(factors.unit):
            return
        surest = surest_first[waiting, :believed]
        rows = factors.unit[surest]
        sizes, directions = torch.linalg.eigh(rows.mT @ rows)
        noise = factors.noise[surest].norm(dim=1)[:, None] * (factors.basis @ directions).norm(dim=1)
        dimensions = (sizes < torch.maximum(SINGULAR * sizes[:, -1:].sqrt(), NOISY * noise).square()).sum(1)
        for dimension in range(1, min(LARGEST_SUBSPACE, factors.samples) + 1):
            fitting = dimensions == dimension
            if fitting.any():
                yield waiting[fitting], directions[fitting, :, :dimension]
        waiting = waiting[dimensions > LARGEST_SUBSPACE]


def _drawn_columns(
    factors: Factors, activations: Tensor, basis: Tensor, rng: torch.Generator
) -> Iterator[Tensor]:
    if basis.shape[2] == 1:
        yield basis[:, :, 0]
        return
    for temperature in TEMPERATURES:
        for _ in range(DRAWS):
            yield _draw(factors, activations, basis, basis.new_tensor(temperature), rng)


def _draw(
    factors: Factors, activations: Tensor, basis: Tensor, temperature: Tensor, rng: torch.Generator
) -> Tensor:
    """The unit vectors in each `basis`, (g, samples, d), orthogonal to d - 1 rows drawn by `activations`.

    A row's chance falls with its pre-activation, exp(-a / temperature): the largest of those logarithms with
    Gumbel noise are a draw without replacement. Rows orthogonal to the basis already are not drawn.
    """
    within = factors.unit @ basis
    lengths = within.norm(dim=2)
    noise = -torch.empty_like(lengths).exponential_(generator=rng).log()
    chances = (noise - activations / temperature).masked_fill(lengths < SINGULAR, -torch.inf)
    rows = chances.topk(basis.shape[2] - 1, dim=1).indices[:, :, None].expand(-1, -1, basis.shape[2])
    drawn = (within / lengths.clamp_min(SINGULAR)[:, :, None]).gather(1, rows)
    directions = torch.linalg.eigh(drawn.mT @ drawn)[1][:, :, :1]
    columns: Tensor = (basis @ directions)[:, :, 0]
    return columns
