"""A client's part of a round, wherever it runs: in a worker here, or in the client of another framework."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.federation.strategies.strategy import LocalTask, Tensors
from glasshouse.learning.fit import fit
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
    shares: int | None = None,
    change: Callable[[Step], Tensor] | None = None,
) -> LocalTask:
    """The task of `client` in the round that has `seed`; `module` is left with the weights sent.

    `change` returns how training with a step changes the model, shape (P,); by default that of `fit`. With
    `shares`, the update gets this client's part of the noise that so many clients make.
    """
    own_seed = client_seed(seed, client)

    def trained(step: Step) -> Tensor:
        return fit(module, received.sent, images, recipe, own_seed, step) - received.sent

    def fitted(step: Step) -> Tensor:
        delta = (change or trained)(compose(step, defences.training()))
        rng = torch_rng(seed, "client", client, "defence")
        update = defences.on_update(delta, layout, rng)
        if shares is None:
            return update
        rng = torch_rng(seed, "client", client, "noise share")
        return defences.on_masking(update, layout, rng, shares)

    write_vector(module, received.sent)
    return LocalTask(
        module, layout, received.sent, images, recipe, received.payload, received.kept, fitted, own_seed
    )
