"""A client's part of a round, wherever it runs: in a worker here, or in the client of another framework."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.federation.strategies.strategy import LocalTask, Tensors
from glasshouse.learning.layout import Layout, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.learning.step import Step, compose


@dataclass(frozen=True, eq=False)
class Received:
    """The model that a client was sent, shape (P,), what came with it, and what it kept before."""

    sent: Tensor
    payload: Tensors
    kept: Tensors


def client_seed(seed: int, client: int) -> int:
    """The seed of a client's training in a round that has `seed`."""
    return derive(seed, "client", client)


def local_task(
    module: nn.Module,
    layout: Layout,
    received: Received,
    images: Images,
    recipe: Recipe,
    defences: Stack,
    *,
    seed: int,
    client: int,
    change: Callable[[Step], Tensor],
    shares: int | None = None,
) -> LocalTask:
    """The task of `client` in the round that has `seed`; `module` is left with the weights sent.

    `change` returns how training with a step changes the model, shape (P,). With `shares`, the update gets
    this client's part of the noise that so many clients make.
    """

    def fitted(step: Step) -> Tensor:
        delta = change(compose(step, defences.training()))
        rng = torch_rng(seed, "client", client, "defence")
        update = defences.on_update(delta, layout, rng)
        if shares is None:
            return update
        rng = torch_rng(seed, "client", client, "noise share")
        return defences.on_masking(update, layout, rng, shares)

    write_vector(module, received.sent)
    return LocalTask(
        module,
        layout,
        received.sent,
        images,
        recipe,
        received.payload,
        received.kept,
        fitted,
        client_seed(seed, client),
    )


class LastGradient(Step):
    """Keeps the gradient of the last batch, as every step before it has left it."""

    def steer(self, parameters: list[nn.Parameter], rng: torch.Generator) -> None:
        reached = (torch.zeros_like(one) if one.grad is None else one.grad for one in parameters)
        self._gradient = torch.cat([gradient.flatten() for gradient in reached])

    def change(self, delta: Tensor, rate: float) -> Tensor:
        """A step's change of the state, shape (P,), with that of the parameters as the gradient has it.

        `delta` is the same after rounding, from which the change of the buffers is taken.
        """
        return torch.cat([-rate * self._gradient, delta[len(self._gradient) :]])
