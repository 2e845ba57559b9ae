"""One batch of noise or of the client's images, through a model and back to its first linear layer."""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.learning.cpu import channels_last
from glasshouse.models.shapes import Shape
from glasshouse.reading import available_memory

MOST, FEWEST = 64, 8
BUDGET = 5e9
"""Multiplications that a batch may cost; a heavy network sees fewer images, but at least `FEWEST`."""

DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
WATCHED = (*WEIGHTED, nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Flow:
    """What passed a layer: the largest magnitude that came in, the largest value that went out."""

    name: str
    module: nn.Module
    largest_in: float
    largest_out: float


@dataclass(eq=False)
class Probe:
    """What a batch of images shows of a model.

    For each linear layer by name, `outputs` holds what its rows give, shape (B, rows), and `signals` the
    loss's derivatives there: what the samples add to the gradients of its biases and, multiplied by their
    inputs, of its weights.
    """

    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    flows: list[Flow] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    signals: dict[str, Tensor] = field(default_factory=dict)
    head: str | None = None


def probe(model: nn.Module, shape: Shape, seed: int, images: Tensor | None = None) -> Probe:
    """Run a batch of `images`, (N, C, H, W), or of noise through a copy of `model` in training mode.

    As many as the model's cost allows; their labels are random. Dropout is off, so that the samples alone
    make the difference.
    """
    copy = deepcopy(model).requires_grad_(False)
    count = affordable(copy.eval(), shape)
    copy.train()
    for module in copy.modules():
        if isinstance(module, DROPOUT):
            module.eval()
    rng = torch.Generator().manual_seed(seed)
    images = noise(count, shape, rng) if images is None else images[spread(len(images), count)]
    seen = Probe()
    leaves: dict[str, Tensor] = {}
    watches = [
        module.register_forward_hook(_watch(name, seen, leaves))
        for name, module in copy.named_modules()
        if isinstance(module, WATCHED)
    ]
    with torch.enable_grad():
        seen.logits = copy(channels_last(images))
        labels = torch.randint(seen.logits.shape[1], (len(images),), generator=rng)
        if seen.logits.requires_grad:
            F.cross_entropy(seen.logits, labels, reduction="sum").backward()
    for watch in watches:
        watch.remove()
    seen.logits = seen.logits.detach()
    seen.signals = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return seen


def spread(held: int, count: int) -> Tensor:
    """Positions of at most `count` of `held` images, from all over them: they may be sorted."""
    return torch.linspace(0, held - 1, min(count, held)).long()


def _watch(name: str, seen: Probe, leaves: dict[str, Tensor]) -> Callable[..., Any]:
    """A hook that notes what flows through a layer and, at linear ones, catches the derivative."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        entered, returned = inputs[0].detach(), output.detach()
        seen.flows.append(Flow(name, module, float(entered.abs().max()), float(returned.max())))
        seen.head = None
        if not isinstance(module, nn.Linear):
            return None
        seen.head = name
        seen.outputs[name] = returned.clone()  # an in-place ReLU may follow
        # A leaf that is added keeps its gradient even if an in-place ReLU overwrites the output.
        leaves[name] = torch.zeros_like(returned, requires_grad=True)
        return output + leaves[name]

    return hook


def affordable(model: nn.Module, shape: Shape) -> int:
    """How many images of `shape` may pass through `model`, which is in evaluation mode."""
    return max(FEWEST, min(MOST, int(BUDGET / max(cost_of(model, shape), 1))))


def cost_of(model: nn.Module, shape: Shape) -> float:
    """The multiplications that one image of `shape` costs in `model`, which is in evaluation mode."""
    cost = kept = 0.0

    def count(module: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal cost, kept
        assert isinstance(module.weight, Tensor)
        cost += module.weight[0].numel() * output.numel()
        kept += 2 * output.numel() * output.element_size()  # what backward needs of it and what is made of it

    layers = (module for module in model.modules() if isinstance(module, WEIGHTED))
    watches = [module.register_forward_hook(count) for module in layers]
    try:
        with torch.no_grad():
            logits = model(torch.zeros(1, *shape))
    except Exception as error:  # whatever a user's network raises
        raise BadInput(
            f"the model cannot take an image of shape {shape}: {' '.join(str(error).split())}; "
            "give the shape that it was built for"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        raise BadInput("the model does not return logits of shape (N, classes); give a classifier")
    for watch in watches:
        watch.remove()
    if FEWEST * kept > available_memory():
        raise BadInput(
            f"{FEWEST} images of shape {shape} need {FEWEST * kept / 2**30:,.0f} GiB in this model, more "
            "than there are; give the shape that it was built for, or a machine with more memory"
        )
    return cost


def noise(count: int, shape: Shape, rng: torch.Generator) -> Tensor:
    """Images of noise, (count, C, H, W) in [0, 1]: every fourth of independent pixels, the others smooth.

    Smooth noise has the spectrum of photographs (amplitude falls with frequency). Brightness and contrast
    vary from image to image, as a crafted layer would sort images by them.
    """
    channels, height, width = shape
    white = torch.randn(count, channels, height, width, generator=rng)
    frequency = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None])
    falling = 1 / frequency.clamp_min(1 / max(height, width))
    smooth = torch.fft.irfft2(torch.fft.rfft2(white) * falling, s=(height, width))
    # Half of the contrast is common to the channels, as in photographs.
    smooth = smooth + smooth.mean(1, keepdim=True) * math.sqrt(channels)
    spread = smooth.std((1, 2, 3), keepdim=True).clamp_min(1e-6)
    smooth = (smooth - smooth.mean((1, 2, 3), keepdim=True)) / spread
    brightness = 0.05 + 0.7 * torch.rand(count, 1, 1, 1, generator=rng)
    contrast = 0.1 + 0.25 * torch.rand(count, 1, 1, 1, generator=rng)
    images = brightness + contrast * smooth
    grainy = brightness + contrast * white
    images[::4] = grainy[::4]
    return torch.clamp(images, 0, 1)
