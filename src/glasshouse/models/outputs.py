"""What a classifier answers, its last layer, and the inputs of that."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.models.shapes import Shape

Call = tuple[nn.Linear, Tensor, Tensor]
"""A layer, its inputs and its outputs."""


def logits_of(answer: Any) -> Any:
    """The logits in what a network answers: in its `logits`, as an attribute or a key, or first of several.

    An answer that holds none is returned as it is.
    """
    if isinstance(answer, Tensor):
        return answer
    logits = getattr(answer, "logits", None)
    if logits is None and isinstance(answer, Mapping):
        logits = answer.get("logits")
    if logits is None and isinstance(answer, tuple | list) and answer:
        logits = answer[0] if isinstance(answer[0], Tensor) and answer[0].ndim == 2 else None
    return logits if isinstance(logits, Tensor) else answer


def give_logits(network: nn.Module) -> None:
    """Have `network` answer with its logits alone from here on, in its copies and in other processes, too."""
    network.register_forward_hook(_logits_alone)


def _logits_alone(network: nn.Module, inputs: tuple[Tensor, ...], answer: Any) -> Any:
    return logits_of(answer)


def output_layer(network: nn.Module, shape: Shape) -> nn.Linear:
    """The linear layer whose outputs are the logits of `network` for images of `shape`."""
    layer = _giving_the_logits(network, shape)
    if layer is not None:
        return layer
    raise BadInput(
        f"{type(network).__name__} does not end in a linear layer, which the strategy feeds with features; "
        "choose a network that does, or another strategy"
    )


def last_layer(network: nn.Module, shape: Shape) -> str:
    """The name of the linear layer whose outputs are the logits; else that of the last parameter's layer."""
    linear = _giving_the_logits(network, shape)
    if linear is not None:
        names: dict[nn.Module, str] = {layer: name for name, layer in network.named_modules()}
        return names[linear]
    return [name.rpartition(".")[0] for name, _ in network.named_parameters()][-1]


def features(network: nn.Module, layer: nn.Linear, x: Tensor) -> Tensor:
    """The inputs of `layer` when `network` sees the images `x`, shape (N, layer.in_features)."""
    with _watching(layer) as calls:
        network(x)
    _, inputs, _ = calls[-1]
    return inputs


def _giving_the_logits(network: nn.Module, shape: Shape) -> nn.Linear | None:
    """The linear layer whose outputs are the logits of `network`, if there is one."""
    training = network.training
    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), _watching(network) as calls:
        logits = network.eval()(images)
    network.train(training)
    return next((layer for layer, _, output in calls if output is logits), None)


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
