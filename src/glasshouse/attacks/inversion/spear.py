"""Whole batches, exactly, from the gradient of a linear layer before a ReLU (Dimitrov et al. 2024, "SPEAR").

The gradient of b samples has rank b, and its factors are known but for an invertible b x b matrix Q, whose
columns make the gradient's left factor sparse (see `sparse_columns`). SPEAR draws b - 1 rows of that factor
at random; a draw succeeds with a chance of about b 2^-(b-1). Here the rows of the gradient themselves are
guesses at the samples: a neuron that only one sample fires has that sample as its row, and one that a few
fire comes close enough for the signs of most pre-activations to be right. What is found is taken out of the
other rows, which then are better guesses.

The result proves itself: where the zeros found agree with the signs of the pre-activations for every neuron
and sample, and the gradient is reproduced to its rounding errors, the batch is exact.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.attacks.inversion.found_samples import FoundSamples
from glasshouse.attacks.inversion.sparse_columns import (
    ROUNDING,
    Factors,
    columns_of_guesses,
    columns_of_random_rows,
)
from glasshouse.errors import CannotRun

GAP = 100.0
"""How far the singular values must fall, at least, from the last of the samples to the first of the noise."""

REPRODUCED = 3.0
"""How many times the noise the gradient of the batch may be off, and the batch still explain all of it."""

ISOTROPY_STEPS = 10
BLIND_DRAWS = 2000
REFINEMENTS = 3


@dataclass(frozen=True, eq=False)
class LayerBatch:
    """What entered a linear layer, as its gradient has it.

    `x`, shape (K, inputs), are the samples whose columns were found, of the `rank` that the gradient mixes:
    samples with equal inputs count once, and those without a gradient not at all. `agreement` is the share of
    neurons and samples at which the zeros found and the signs of the pre-activations say the same, `residual`
    the relative distance from the gradient to the one that the batch has. `exact` is the proof; where it is
    missing, `reason` says why.
    """

    x: Tensor
    rank: int
    agreement: float
    residual: float
    exact: bool
    reason: str | None
    seconds: float


def invert_layer(
    weight_gradient: Tensor,
    bias_gradient: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    seconds: float,
    guided: bool = True,
    rng: torch.Generator,
) -> LayerBatch:
    """The batch that entered a linear layer, from gradients of shapes (neurons, inputs) and (neurons,).

    The search ends with the last column, or after `seconds`. Where it is not `guided`, rows are drawn at
    random. Raises `CannotRun` where the gradient does not have the rank of a batch.
    """
    began = time.perf_counter()
    gradient = torch.cat([weight_gradient, bias_gradient[:, None]], 1).double()
    layer = torch.cat([weight, bias[:, None]], 1).double()
    factors, noise = factorise(gradient, layer)
    samples = FoundSamples(factors)
    while not samples.consistent and time.perf_counter() - began < seconds:
        if samples.complete:
            samples.drop_doubtful()
        elif guided:
            samples.learn(columns_of_guesses(factors, samples.guesses(rng), rng))
        else:
            samples.learn(columns_of_random_rows(factors, BLIND_DRAWS, rng))
    flows, inputs = _batch(factors, samples, gradient)
    agreement = ((inputs @ layer.T > 0) == (flows.T != 0)).double().mean().item() if len(inputs) else 0.0
    residual = ((gradient - flows @ inputs).norm() / gradient.norm()).item()
    reason = _missing_proof(samples, agreement, residual, noise, seconds)
    x, took = inputs[:, :-1], time.perf_counter() - began
    return LayerBatch(x, factors.samples, agreement, residual, reason is None, reason, took)


def factorise(gradient: Tensor, layer: Tensor) -> tuple[Factors, float]:
    """The factors of `gradient`, shape (neurons, inputs + 1), of a `layer` of that shape; and its noise.

    The rank is where the singular values fall most steeply. What is left is noise, and so is as much of the
    rest in every direction; it is given as a share of the gradient.
    """
    if not torch.isfinite(gradient).all():
        raise CannotRun("the gradient of the layer is not finite")
    live = gradient.abs().sum(1) > 0
    seen = gradient.abs().sum(0) > 0
    if not live.any() or not seen[-1]:
        raise CannotRun("the layer has no gradient: no sample moved it")
    outer, sizes, inner = torch.linalg.svd(gradient[live][:, seen], full_matrices=False)
    rank = _numerical_rank(sizes)
    left = outer[:, :rank] * sizes[:rank]
    unit, basis = _isotropic(left)
    right = gradient.new_zeros(rank, gradient.shape[1])
    right[:, seen] = torch.linalg.solve(basis, inner[:rank])
    left = left @ basis
    rest = (outer[:, rank:] * sizes[rank:]).norm(dim=1)
    noise = rest / (left.norm(dim=1) * max(1, int(seen.sum()) - rank) ** 0.5)
    return Factors(left, unit, right, layer[live] @ right.T, noise, basis), (
        rest.norm() / sizes.norm()
    ).item()


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


def _batch(factors: Factors, samples: FoundSamples, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """What flows back through the samples found, shape (neurons, K), and their inputs, (K, inputs + 1)."""
    estimates = torch.linalg.inv(samples.columns.T) if samples.complete else samples.estimates
    estimates = estimates / (estimates @ factors.right[:, -1:])
    scaled = samples.columns / (samples.columns * estimates).sum(1, keepdim=True)
    live = gradient.abs().sum(1) > 0
    flows = gradient.new_zeros(len(gradient), len(estimates))
    flows[live] = (factors.left @ scaled.T).masked_fill(factors.silent(samples.columns).T, 0)
    inputs = estimates @ factors.right
    for _ in range(REFINEMENTS if samples.complete else 0):
        inputs = _refined_inputs(gradient, flows)
        flows = _refined_flows(gradient, inputs, flows != 0)
    return flows, inputs


def _refined_inputs(gradient: Tensor, flows: Tensor) -> Tensor:
    """The inputs that, with what flows back through them, come closest to the gradient."""
    inputs: Tensor = torch.linalg.lstsq(flows, gradient).solution
    return inputs / inputs[:, -1:]


def _refined_flows(gradient: Tensor, inputs: Tensor, fires: Tensor) -> Tensor:
    """What flows back where samples fire, (neurons, K), so that the gradient of `inputs` comes closest."""
    products = inputs @ inputs.T
    both = fires[:, :, None] & fires[:, None, :]
    normal = (products * both) + torch.diag_embed((~fires).to(products.dtype))
    refined: Tensor = torch.linalg.solve(normal, (gradient @ inputs.T) * fires)
    return refined


def _missing_proof(
    samples: FoundSamples, agreement: float, residual: float, noise: float, seconds: float
) -> str | None:
    """Why the batch is not proven to be exact; null where it is."""
    found, rank = len(samples.columns), samples.columns.shape[1]
    if not samples.complete:
        return f"{found} of the {rank} samples in the gradient were found within {seconds:g} seconds"
    if agreement < 1:
        return f"{agreement:.2%} of the neurons fire as the samples found say, and not all"
    if not residual <= REPRODUCED * noise + ROUNDING:
        return f"the samples found explain the gradient but for {residual:.1e} of it, which is not rounding"
    return None
