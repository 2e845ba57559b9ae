"""The last linear layer of a network, where labels show."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.inversion.updates import check_plain_steps
from glasshouse.errors import CannotRun
from glasshouse.learning.evaluate import predict


@dataclass(frozen=True)
class Head:
    """The names of the last linear layer's weight, shape (classes, width), and bias, shape (classes,)."""

    weight: str
    bias: str


def find_head(protocol: Protocol) -> Head:
    """The head of the protocol's network, or `CannotRun` where labels do not show in its updates."""
    check_plain_steps(protocol.recipe)
    return last_linear(protocol)


def last_linear(protocol: Protocol) -> Head:
    """The linear layer with a bias whose outputs are the network's, or `CannotRun` where there is none."""
    for name, module in protocol.architecture.named_modules():
        head = Head(f"{name}.weight".lstrip("."), f"{name}.bias".lstrip("."))
        known = {head.weight, head.bias} <= {*protocol.layout.names, *protocol.layout.frozen}
        if isinstance(module, nn.Linear) and known and _gives_the_logits(module, protocol):
            protocol.layout.check_sent(head.weight, head.bias)
            return head
    raise CannotRun("the network does not end in a linear layer with a bias")


def _gives_the_logits(layer: nn.Module, protocol: Protocol) -> bool:
    """Whether what `layer` computes is what the network returns."""
    outputs: list[Tensor] = []
    watch = layer.register_forward_hook(lambda _, __, output: outputs.append(output))
    try:
        logits = predict(protocol.architecture, torch.rand(2, *protocol.shape, generator=torch.Generator()))
    finally:
        watch.remove()
    return len(outputs) == 1 and torch.equal(outputs[0], logits)
