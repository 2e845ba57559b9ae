"""A network as a chain of linear maps and activations, found by watching it compute.

What can be undone layer by layer is x -> activation(W x + b), again and again, with nothing in between but a
change of shape. Which modules a network runs, in which order and on what, shows in one pass of an image.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.errors import CannotRun

ACTIVATIONS = (nn.LeakyReLU, nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Identity)
"""Activations that can be undone wherever their output tells their input."""


@dataclass(frozen=True, eq=False)
class Link:
    """One linear map of the chain, a convolution or a linear layer, and the activation behind it.

    `name` is that of the module in its network; `entering` and `leaving` are the shapes of what goes in and
    comes out, without the batch: (C, H, W) for a convolution, (n,) for a linear layer.
    """

    name: str
    module: nn.Conv2d | nn.Linear
    activation: nn.Module
    entering: tuple[int, ...]
    leaving: tuple[int, ...]

    @property
    def weight(self) -> str:
        """The name of the weight among the network's parameters."""
        return f"{self.name}.weight".lstrip(".")

    @property
    def bias(self) -> str | None:
        """The name of the bias among the network's parameters; null where there is none."""
        return f"{self.name}.bias".lstrip(".") if self.module.bias is not None else None


@dataclass(frozen=True, eq=False)
class Step:
    """One module without children that an image passed: what went in and what came out."""

    name: str
    module: nn.Module
    x: Tensor
    z: Tensor


def find_chain(network: nn.Module, shape: tuple[int, int, int]) -> tuple[Link, ...]:
    """The links of `network`, first to last, or `CannotRun` where it is no chain of them."""
    probe = random_image(shape)
    with torch.no_grad():
        steps, logits = watch(deepcopy(network).double().eval(), probe)
    steps = [step for step in steps if not isinstance(step.module, nn.Flatten | nn.Identity)]
    before = probe
    for step in steps:
        _check(step, before)
        before = step.z
    if not steps or not torch.equal(before.flatten(), logits.flatten()):
        raise CannotRun("the network returns something other than what its last layer gives")
    if any(isinstance(first.module, ACTIVATIONS) for first in steps[:1]):
        raise CannotRun("the network begins with an activation, not with a linear map")
    links: list[Link] = []
    for step in steps:
        if isinstance(step.module, nn.Conv2d | nn.Linear):
            entering, leaving = tuple(step.x.shape[1:]), tuple(step.z.shape[1:])
            links.append(Link(step.name, step.module, nn.Identity(), entering, leaving))
        elif not isinstance(links[-1].activation, nn.Identity):
            raise CannotRun(f"two activations follow one another at {step.name!r}")
        else:
            last = links[-1]
            links[-1] = Link(last.name, last.module, step.module, last.entering, last.leaving)
    return tuple(links)


def random_image(shape: tuple[int, int, int]) -> Tensor:
    """An image of the attacker's own, to see what a network does with it; shape (1, C, H, W), double."""
    return torch.rand(1, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def watch(network: nn.Module, x: Tensor) -> tuple[list[Step], Tensor]:
    """Each module without children that images `x`, shape (N, C, H, W), pass; and the logits they end in."""
    steps: list[Step] = []

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda module, inputs, z: steps.append(Step(name, module, inputs[0], z))

    leaves = [(name, module) for name, module in network.named_modules() if not list(module.children())]
    hooks = [module.register_forward_hook(note(name)) for name, module in leaves]
    try:
        logits: Tensor = network(x)
    finally:
        for hook in hooks:
            hook.remove()
    return steps, logits


def _check(step: Step, before: Tensor) -> None:
    module, kind = step.module, type(step.module).__name__
    if not isinstance(module, (nn.Conv2d, nn.Linear, *ACTIVATIONS)):
        raise CannotRun(f"{kind} at {step.name!r} cannot be undone; only linear maps and activations can")
    if not torch.equal(before.flatten(), step.x.flatten()):
        raise CannotRun(f"what enters {kind} at {step.name!r} is not what left the layer before it")
    if isinstance(module, nn.Linear) and step.x.dim() != 2:
        raise CannotRun(f"the linear layer {step.name!r} acts on several places at once")
    if isinstance(module, nn.Conv2d) and (module.groups != 1 or module.padding_mode != "zeros"):
        raise CannotRun(f"the convolution {step.name!r} has groups or a padding other than zeros")
