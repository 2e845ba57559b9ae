"""How many images are behind a gradient, by the rank of what linear layers moved.

The weight gradient of a linear layer is (1/N) sum_i d_i a_i^T over the images i: its rank is N at most, and N
where neither the layer's inputs a_i nor what flows back to it, d_i, are linearly dependent. Whether a layer
could show one image more is tried out on noise.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.inversion.updates import training_network


@dataclass(frozen=True)
class RankCount:
    """At `least` so many images are behind an update; just as many where it is `exact`, as `layer` shows.

    `last` says that this layer is the last of its kind.
    """

    least: int
    exact: bool
    layer: str
    last: bool = False


def count_by_rank(
    protocol: Protocol, sent: Tensor, change: Tensor, precision: float, rounded: Tensor | None, steps: int = 1
) -> RankCount | None:
    """The count that the layer of the highest rank gives; null where no linear layer takes one row an image.

    Of a change that was computed from `rounded` weights, shape (P,), what rounding explains is left out.
    After several steps only layers that read the images themselves still have one direction an image.
    """
    network = training_network(protocol, sent)
    layers = [name for name, first in _row_layers(network, protocol) if first or steps == 1]
    if not layers:
        return None
    moved = protocol.layout.named(change)
    weights = {} if rounded is None else protocol.layout.named(rounded)
    ranks = {layer: _rank(moved[_weight(layer)], precision, weights.get(_weight(layer))) for layer in layers}
    layer = max(ranks, key=lambda name: ranks[name])
    least = max(1, ranks[layer])
    return RankCount(least, _shows(network, protocol, layer, least + 1), layer, layer == layers[-1])


def _shows(network: nn.Module, protocol: Protocol, layer: str, images: int) -> bool:
    """Whether the gradient of a batch of so much noise has its full rank in `layer`."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(images, *protocol.shape, generator=rng)
    y = torch.randint(protocol.classes, (images,), generator=rng)
    weight = network.get_parameter(_weight(layer))
    loss = F.cross_entropy(network(x), y)
    (gradient,) = torch.autograd.grad(loss, [weight], materialize_grads=True)
    return _rank(gradient, torch.finfo(torch.float32).eps, None) >= images


def _rank(matrix: Tensor, precision: float, rounded: Tensor | None) -> int:
    """The number of singular values above the rounding: relative, and of `rounded` weights absolute."""
    values = torch.linalg.svdvals(matrix.double())
    noise = precision * max(matrix.shape) * float(values[0])
    if rounded is not None:
        noise = max(noise, precision * float(rounded.double().norm()))
    return int((values > noise).sum())


def _weight(layer: str) -> str:
    return f"{layer}.weight".lstrip(".")


def _row_layers(network: nn.Module, protocol: Protocol) -> Iterator[tuple[str, bool]]:
    """The linear layers that get one row for each image, and whether these are the images themselves."""
    seen: dict[str, list[Tensor]] = {}
    with ExitStack() as watching:
        for name, module in network.named_modules():
            if isinstance(module, nn.Linear) and _weight(name) in protocol.layout.names:
                inputs = seen.setdefault(name, [])
                hook = module.register_forward_hook(lambda _, given, __, kept=inputs: kept.append(given[0]))
                watching.callback(hook.remove)
        network(torch.rand(2, *protocol.shape, generator=torch.Generator()))
    for name, inputs in seen.items():
        if len(inputs) == 1 and inputs[0].dim() == 2 and len(inputs[0]) == 2:
            yield name, not inputs[0].requires_grad
