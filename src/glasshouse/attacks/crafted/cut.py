"""Where a classifier is cut: an encoder, and the linear layers behind it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.errors import CannotRun
from glasshouse.models.split import SplitNetwork

Call = tuple[str, nn.Module, Tensor, Tensor]
"""A layer as it was called: its name, itself, its input and its output."""


@dataclass(frozen=True)
class Cut:
    """The linear layers at the end of a network, with ReLU between them, by name, from first to last.

    `latent` is the shape of the first one's input for one image: (d,), or that before flattening.
    """

    linear: tuple[str, ...]
    latent: tuple[int, ...]


def find_cut(protocol: Protocol) -> Cut:
    """The cut of the protocol's network; `CannotRun` where it does not end in two linear layers or more."""
    calls = _trace(protocol.architecture, protocol.shape)
    names: list[str] = []
    reached = len(calls)
    for place in range(len(calls) - 1, -1, -1):
        name, layer, inputs, output = calls[place]
        follows = reached == len(calls) or calls[reached][2] is output
        if isinstance(layer, nn.Linear) and follows and inputs.ndim == 2 and layer.bias is not None:
            names.insert(0, name)
        elif not (isinstance(layer, nn.ReLU) and follows and names):
            break
        reached = place
    while reached < len(calls) and not isinstance(calls[reached][1], nn.Linear):
        reached += 1
    if len(names) < 2:
        raise CannotRun("the network does not end in two linear layers with nothing but ReLU between them")
    protocol.layout.check_sent(*(f"{name}.{part}" for name in names for part in ("weight", "bias")))
    return Cut(tuple(names), _latent_shape(calls[:reached], calls[reached][2]))


def encoder(network: nn.Module, cut: Cut) -> Callable[[Tensor], Tensor]:
    """The part of `network` before the cut: images (N, C, H, W) to latents (N, d)."""
    if isinstance(network, SplitNetwork):
        return network.encoder
    first = network.get_submodule(cut.linear[0])

    def stop(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise _Reached(inputs[0])

    def encode(x: Tensor) -> Tensor:
        hook = first.register_forward_pre_hook(stop)
        try:
            network(x)
        except _Reached as reached:
            return reached.latent
        finally:
            hook.remove()
        raise AssertionError("the network does not pass through its first linear layer")

    return encode


class _Reached(Exception):
    def __init__(self, latent: Tensor) -> None:
        super().__init__()
        self.latent = latent


def _trace(network: nn.Module, shape: tuple[int, int, int]) -> list[Call]:
    """Every call of a layer without parts, in order."""
    calls: list[Call] = []
    hooks = [
        layer.register_forward_hook(
            lambda called, inputs, out, name=name: calls.append((name, called, inputs[0], out))
        )
        for name, layer in network.named_modules()
        if not any(layer.children())
    ]
    network.eval()
    try:
        with torch.no_grad():
            network(torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)))
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _latent_shape(before: list[Call], latent: Tensor) -> tuple[int, ...]:
    """The latent's shape as channels, height and width, if it was flattened from that."""
    size = math.prod(latent.shape[1:])
    for _, layer, inputs, _ in reversed(before):
        if isinstance(layer, nn.Flatten) and inputs.ndim == 4 and math.prod(inputs.shape[1:]) == size:
            return tuple(inputs.shape[1:])
        if not isinstance(layer, nn.Flatten):
            break
    return (size,)
