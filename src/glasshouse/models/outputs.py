"""The last layer of a classifier: what it is given, and what it makes of other features."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.models.shapes import Shape

Call = tuple[nn.Linear, Tensor, Tensor]
"""A layer, what it was given and what it made of it."""


def output_layer(network: nn.Module, shape: Shape) -> nn.Linear:
    """The linear layer whose outputs are the logits of `network` for images of `shape`."""
    training = network.training
    given = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), _watching(network) as calls:
        logits = network.eval()(given)
    network.train(training)
    for layer, _, output in calls:
        if output is logits:
            return layer
    raise BadInput(
        f"{type(network).__name__} does not end in a linear layer, which the strategy feeds with features; "
        "take a network that does, or another strategy"
    )


def features(network: nn.Module, layer: nn.Linear, x: Tensor) -> Tensor:
    """What `layer` is given when `network` sees the images `x`, shape (N, layer.in_features)."""
    with _watching(layer) as calls:
        network(x)
    (_, given, _) = calls[-1]
    return given


@contextmanager
def _watching(network: nn.Module) -> Iterator[list[Call]]:
    """Keeps every call of a linear layer in `network`."""
    calls: list[Call] = []

    def keep(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Linear)
        calls.append((layer, given[0], output))

    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(keep) for layer in linear]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
