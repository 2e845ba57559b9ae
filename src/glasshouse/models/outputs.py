"""The last layer of a classifier and its inputs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.models.shapes import Shape

Call = tuple[nn.Linear, Tensor, Tensor]
"""A layer, its inputs and its outputs."""


def output_layer(network: nn.Module, shape: Shape) -> nn.Linear:
    """The linear layer whose outputs are the logits of `network` for images of `shape`."""
    training = network.training
    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), _watching(network) as calls:
        logits = network.eval()(images)
    network.train(training)
    for layer, _, output in calls:
        if output is logits:
            return layer
    raise BadInput(
        f"{type(network).__name__} does not end in a linear layer, which the strategy feeds with features; "
        "choose a network that does, or another strategy"
    )


def features(network: nn.Module, layer: nn.Linear, x: Tensor) -> Tensor:
    """The inputs of `layer` when `network` sees the images `x`, shape (N, layer.in_features)."""
    with _watching(layer) as calls:
        network(x)
    _, inputs, _ = calls[-1]
    return inputs


@contextmanager
def _watching(network: nn.Module) -> Iterator[list[Call]]:
    """Keeps every call of a linear layer in `network`."""
    calls: list[Call] = []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Linear)
        calls.append((layer, inputs[0], output))

    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(keep) for layer in linear]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
