"""The one loop that trains: a client's local epochs, a central baseline and a shadow model alike."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
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
    counters = [(buffer, buffer.clone()) for buffer in model.buffers() if not buffer.is_floating_point()]
    optimiser = recipe.make_optimiser(model.parameters())
    total = recipe.total_steps(len(images))
    rng = torch_rng(seed, "transform")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "dropout"))
        for step, batch in enumerate(batches(len(images), recipe, numpy_rng(seed, "batches"))):
            x, y = channels_last(images.x[batch]), images.y[batch]
            if on_batch is not None:
                x = on_batch(x, rng)
            loss = F.cross_entropy(_forward(model, x), y)
            if objective is not None:
                loss = loss + objective(model, x, y)
            optimiser.zero_grad()
            loss.backward()
            for group in optimiser.param_groups:
                group["lr"] = recipe.lr_at(step, total)
            optimiser.step()
    for buffer, before in counters:
        buffer.copy_(before)  # the next client must not start from this one's step count
    return read_vector(model)


def _forward(model: nn.Module, x: Tensor) -> Tensor:
    try:
        logits: Tensor = model(x)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise BadInput(
            f"batch norm cannot be trained on a batch of {len(x)} image; "
            "use a batch_size of at least 2 and give every client at least 2 images"
        ) from error
    return logits


def batches(samples: int, recipe: Recipe, rng: np.random.Generator) -> Iterator[Tensor]:
    """Positions of each training batch, reshuffled every epoch; the last batch of an epoch may be smaller."""
    last = recipe.last_batch(samples)
    for _ in range(recipe.epochs):
        order = torch.from_numpy(rng.permutation(samples))
        yield from order[: samples - last].split(recipe.batch(samples)) if last < samples else ()
        yield order[samples - last :]


def channels_last(x: Tensor) -> Tensor:
    """`x` in the memory order that makes convolutions faster on a CPU."""
    return x.contiguous(memory_format=torch.channels_last)


def laid_out(model: nn.Module) -> nn.Module:
    """`model` laid out for `fit`: the same function, in the order of `channels_last` and with less work."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        elif type(module) is nn.MaxPool2d and not module.return_indices:
            module.register_forward_hook(_keep_order)
        elif type(module) is nn.Dropout:
            module.__class__ = _Dropout
        elif type(module) is nn.Sequential:
            _pool_first(module)
    return model


class _Dropout(nn.Dropout):
    """Dropout with a mask from uniform numbers, which a CPU draws in half the time of Bernoulli ones."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 1:
            return super().forward(x)
        return x * torch.rand_like(x).ge(self.p).to(x.dtype).div_(1 - self.p)


def _keep_order(pooling: nn.Module, inputs: tuple[Tensor, ...], pooled: Tensor) -> None:
    """Have the gradient of `pooled` arrive in its order: else pooling copies its large input's twice."""
    if pooled.requires_grad and pooled.is_contiguous(memory_format=torch.channels_last):
        pooled.register_hook(channels_last)


def _pool_first(layers: nn.Sequential) -> None:
    """Pool before ReLU: both are monotone, so the numbers are the same, on fewer pixels."""
    for place, (rectify, pool) in enumerate(pairwise(list(layers))):
        if type(rectify) is nn.ReLU and type(pool) is nn.MaxPool2d and not pool.return_indices:
            layers[place], layers[place + 1] = pool, rectify
