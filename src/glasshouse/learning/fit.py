"""The one loop that trains: a client's local epochs, a central baseline and a shadow model alike."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng

Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""An extra loss term: (model, x, y) -> scalar, added to the cross-entropy of each batch."""

Transform = Callable[[Tensor, torch.Generator], Tensor]
"""What happens to each training batch: (x, rng) -> x."""


def fit(
    model: nn.Module,
    start: Tensor,
    images: Images,
    recipe: Recipe,
    seed: int,
    *,
    objective: Objective | None = None,
    on_batch: Transform | None = None,
) -> Tensor:
    """Train from the state `start`, shape (P,), and return the state reached, shape (P,).

    The result depends on the arguments alone; `model` lends its architecture and is left trained.
    """
    write_vector(model, start)
    model.train()
    optimiser = recipe.make_optimiser(model.parameters())
    total = recipe.total_steps(len(images))
    rng = torch_rng(seed, "transform")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "dropout"))
        for step, batch in enumerate(batches(len(images), recipe, numpy_rng(seed, "batches"))):
            x, y = channels_last(images.x[batch]), images.y[batch]
            if on_batch is not None:
                x = on_batch(x, rng)
            loss = F.cross_entropy(model(x), y)
            if objective is not None:
                loss = loss + objective(model, x, y)
            optimiser.zero_grad()
            loss.backward()
            for group in optimiser.param_groups:
                group["lr"] = recipe.lr_at(step, total)
            optimiser.step()
    return read_vector(model)


def batches(samples: int, recipe: Recipe, rng: np.random.Generator) -> Iterator[Tensor]:
    """Positions of each training batch, reshuffled every epoch; the last batch of an epoch may be smaller."""
    size = recipe.batch(samples)
    left = recipe.total_steps(samples)
    while left > 0:
        order = torch.from_numpy(rng.permutation(samples))
        for batch in order.split(size)[:left]:
            yield batch
            left -= 1


def channels_last(x: Tensor) -> Tensor:
    """`x` in the memory order that makes convolutions faster on a CPU."""
    return x.contiguous(memory_format=torch.channels_last)


def laid_out(model: nn.Module) -> nn.Module:
    """`model` laid out for `fit`: weights of convolutions in the memory order of `channels_last`."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
