"""Whole batches, exactly, from the gradient of a linear layer before a ReLU (Dimitrov et al. 2024, "SPEAR").

The gradient of b samples has rank b, and its factors are known but for an invertible b x b matrix Q, whose
columns make the gradient's left factor sparse (see `sparse_columns`). SPEAR draws b - 1 rows of that factor
at random; a draw succeeds with a chance of about b 2^-(b-1). Here the rows of the gradient themselves are
guesses at the samples: a neuron that only one sample fires has that sample as its row, and one that a few
fire comes close enough for the signs of most pre-activations to be right. What is found is taken out of the
other rows, which then are better guesses.

SPEAR++ (Bakarsky et al. 2025, arXiv 2510.24200) solves the same problem, also for batches that blind draws do
not reach, with algorithms of sparsely used dictionary learning. The guided search shares the problem and the
aim, and no more: it learns no dictionary, and reads where a column should be zero off the weights that were
sent, which tell the signs of a guess's pre-activations.

The result proves itself: where nothing flows back through neurons that a sample does not fire, for every
neuron and sample, something flows through those that it fires, and the gradient is reproduced to its rounding
errors, the batch is exact.
"""

import time
from copy import deepcopy
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.factors import factorise
from glasshouse.attacks.inversion.found_samples import FoundSamples
from glasshouse.attacks.inversion.inversion import UpdateInversion
from glasshouse.attacks.inversion.sparse_columns import (
    ROUNDING,
    Factors,
    columns_of_guesses,
    columns_of_random_rows,
)
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt
from glasshouse.options import check_flag, check_number, check_whole

LOST = 1e-3
"""The share of neurons and samples at which what flows back may be so little that the noise hides it."""

REPRODUCED = 3.0
"""How many times the noise the gradient of the batch may be off, and the batch still explain all of it."""

BLIND_DRAWS = 2000
REFINEMENTS = 3

TURNED = 0.05
"""The share of neurons that several local steps may turn on or off for a sample."""

PASS = 2e-4
"""Seconds that a pass over the neurons takes for each of them and each sample, about, on one core."""


@dataclass(frozen=True, kw_only=True)
class Spear(UpdateInversion):
    """SPEAR: all images behind an update at once, exactly, and a proof that they are (Dimitrov et al. 2024).

    Reads the first layer of a network that begins with a linear one and a ReLU, for `seconds` an update at
    most, and where `passes` are given for at most as many over its neurons, which no machine's speed decides.
    Where it is not `guided` by the signs of pre-activations it draws rows at random, as published.
    """

    name = "spear"

    seconds: float = 60.0
    passes: int | None = None
    guided: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.name, "seconds", self.seconds, 0, open_low=True)
        check_flag(self.name, "guided", self.guided)
        if self.passes is not None:
            check_whole(self.name, "passes", self.passes, 1)

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        super().check_protocol(protocol, samples)
        leading_layer(protocol)

    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        layout, layer = update.protocol.layout, leading_layer(update.protocol)
        names = (f"{layer}.weight".lstrip("."), f"{layer}.bias".lstrip("."))
        gradient, sent = layout.named(update.gradient()), layout.named(update.sent)
        batch = invert_layer(
            *(gradient[name] for name in names),
            *(sent[name] for name in names),
            seconds=self.seconds,
            passes=self.passes,
            guided=self.guided,
            turned=TURNED if update.steps > 1 else 0.0,
            rng=rng,
        )
        if batch.rank > update.samples:
            raise CannotRun(
                f"the layer's gradient has rank {batch.rank} for {update.samples} images: it holds noise, or "
                "more than one gradient"
            )
        if not len(batch.x):
            raise CannotRun(batch.reason or "no image has a gradient")
        x = batch.x.float().nan_to_num().clamp(0, 1).view(-1, *update.protocol.shape)
        return Rebuilt(x, update.clients, note=batch.described, proven=batch.exact)


def seconds_of_a_pass(update: AttackedUpdate) -> float:
    """About how long one pass takes on one core, by the sizes of the layer and the batch alone."""
    weight = f"{leading_layer(update.protocol)}.weight".lstrip(".")
    return PASS * len(update.protocol.layout.named(update.sent)[weight]) * update.samples


def leading_layer(protocol: Protocol) -> str:
    """The name of the linear layer that sees the image itself and feeds a ReLU, or `CannotRun`.

    Whether a ReLU follows is seen from what flows back: nothing where the layer's output is negative.
    """
    network = deepcopy(protocol.architecture).eval()
    x = torch.rand(4, *protocol.shape, generator=torch.Generator().manual_seed(0))
    linear: dict[nn.Module, str] = {
        module: name for name, module in network.named_modules() if isinstance(module, nn.Linear)
    }
    inputs: dict[nn.Module, Tensor] = {}
    outputs: dict[nn.Module, Tensor] = {}

    def watch(module: nn.Module, seen: tuple[Tensor, ...], output: Tensor) -> None:
        inputs[module], outputs[module] = seen[0], output

    for module in linear:
        module.register_forward_hook(watch)
    with torch.enable_grad():
        logits = network(x)
        first = next((module for module in inputs if torch.equal(inputs[module], x.flatten(1))), None)
        if first is None:
            raise CannotRun("the network has no linear layer that sees the image itself")
        protocol.layout.check_sent(f"{linear[first]}.weight".lstrip("."))
        if not outputs[first].requires_grad:
            raise CannotRun("nothing flows back to the linear layer that sees the image")
        (flow,) = torch.autograd.grad(logits.square().sum(), outputs[first], materialize_grads=True)
    if not flow.any() or flow[outputs[first] < 0].any():
        raise CannotRun("no ReLU follows the linear layer that sees the image")
    if f"{linear[first]}.bias".lstrip(".") not in protocol.layout.names:
        raise CannotRun("the linear layer that sees the image has no bias, which scales the images")
    return linear[first]


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

    @property
    def described(self) -> str:
        """What is known about the batch, in words for a finding."""
        if self.reason:
            return f"not proven: {self.reason}"
        return f"proven exact: {self.rank} images explain the gradient, and every neuron fires as they say"


def invert_layer(
    weight_gradient: Tensor,
    bias_gradient: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    seconds: float,
    passes: int | None = None,
    guided: bool = True,
    turned: float = 0.0,
    rng: torch.Generator,
) -> LayerBatch:
    """The batch that entered a linear layer, from gradients of shapes (neurons, inputs) and (neurons,).

    The search ends with the last column, or after `seconds`, or as many `passes` as are given. Where it is
    not `guided`, rows are drawn at random. `turned` is the share of neurons that may have begun or ceased to
    fire for a sample since `weight` and `bias`, as in several local steps: their sum still has the rank and
    the zeros of a batch. Raises `CannotRun` where the gradient does not have that rank.
    """
    began = time.perf_counter()
    gradient = torch.cat([weight_gradient, bias_gradient[:, None]], 1).double()
    layer = torch.cat([weight, bias[:, None]], 1).double()
    factors = factorise(gradient, layer)
    samples = FoundSamples(factors, turned)
    for number in count():
        late = time.perf_counter() - began >= seconds or number == passes
        if samples.consistent or late:
            break
        if samples.complete:
            samples.drop_doubtful()
        elif guided:
            samples.learn(columns_of_guesses(factors, samples.guesses(rng), rng))
        else:
            samples.learn(columns_of_random_rows(factors, BLIND_DRAWS, rng))
    return _judged(factors, samples, gradient, layer, began)


def _judged(
    factors: Factors, samples: FoundSamples, gradient: Tensor, layer: Tensor, began: float
) -> LayerBatch:
    """The samples found, and whether they are proven to be all, and exact.

    Neurons that the factors leave out, but for those without any gradient, are no evidence.
    """
    evidence = factors.live | (gradient == 0).all(1)
    gradient, layer = gradient[evidence], layer[evidence]
    flows, inputs = _batch(factors, samples, gradient)
    fires = flows.T != 0
    contradictions = factors.contradictions(inputs @ layer.T, fires)
    agreement = 1 - contradictions.double().mean().item() if len(inputs) else 0.0
    residual = ((gradient - flows @ inputs).norm() / gradient.norm()).item()
    seconds = time.perf_counter() - began
    reason: str | None = f"of {factors.samples} samples {len(inputs)} were found in {seconds:.3g} seconds"
    if samples.complete:
        impossible = bool((contradictions & fires).any())
        reproduced = residual <= REPRODUCED * factors.noise_share + ROUNDING
        reason = _missing_proof(agreement, impossible, residual, reproduced)
    return LayerBatch(inputs[:, :-1], factors.samples, agreement, residual, reason is None, reason, seconds)


def _batch(factors: Factors, samples: FoundSamples, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """What flows back through the samples found, shape (neurons, K), and their inputs, (K, inputs + 1)."""
    estimates = torch.linalg.inv(samples.columns.T) if samples.complete else samples.estimates
    estimates = estimates / (estimates @ factors.right[:, -1:])
    scaled = samples.columns / (samples.columns * estimates).sum(1, keepdim=True)
    flows = gradient.new_zeros(len(gradient), len(estimates))
    flows[(gradient != 0).any(1)] = (factors.left @ scaled.T).masked_fill(
        factors.silent(samples.columns).T, 0
    )
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


def _missing_proof(agreement: float, impossible: bool, residual: float, reproduced: bool) -> str | None:
    """Why a complete batch is not proven to be exact; null where it is."""
    if impossible or agreement < 1 - LOST:
        return f"{agreement:.2%} of the neurons fire as the samples found say, and not all"
    if not reproduced:
        return f"the samples found explain the gradient but for {residual:.1e} of it, which is not rounding"
    return None
