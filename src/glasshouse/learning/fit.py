"""The one loop that trains: a client's local epochs, a central baseline and a shadow model alike."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.augment import augmented
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.mixing import mixed, own_labels
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.learning.step import PLAIN, BatchLoss, Step
from glasshouse.models.freezing import exchanged


def fit(
    model: nn.Module, start: Tensor, images: Images, recipe: Recipe, seed: int, step: Step = PLAIN
) -> Tensor:
    """Train from the state `start`, shape (P,), and return the state reached, shape (P,).

    `step` is what happens to each batch. The result depends on the arguments alone; `model` provides the
    architecture and is left trained.
    """

    write_vector(model, start)
    model.train(recipe.mode == "train")
    step = step.started(model, len(images), recipe)
    loss = batch_loss(model, recipe, step)
    counters = [(buffer, buffer.clone()) for buffer in model.buffers() if not buffer.is_floating_point()]
    parameters = list(exchanged(model).values())
    optimiser = recipe.make_optimiser(parameters)
    rng, mixing = torch_rng(seed, "transform"), numpy_rng(seed, "mix-up")
    augmenting = torch_rng(seed, "augment")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "dropout"))
        drawn = _drawn(len(images), step.public_size, recipe, numpy_rng(seed, "batches"))
        for batch, rate in zip(drawn, recipe.rates(step.public_size or len(images)), strict=True):
            x, y = channels_last(images.x[batch]), images.y[batch]
            x = augmented(x, recipe.augment, augmenting) if recipe.augment else x
            x = step.prepare(model, x, y, rng) if len(batch) else x
            if recipe.mix_up:
                x, y = mixed(x, y, images.classes, recipe.mix_up, mixing)
            optimiser.zero_grad()
            step.backward(model, x, y, loss, rng)
            step.steer(parameters, rng)
            if recipe.clip_grad_norm:
                nn.utils.clip_grad_norm_(parameters, recipe.clip_grad_norm)
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
    for buffer, before in counters:
        buffer.copy_(before)  # the next client must not start from this one's step count
    return read_vector(model)


def batch_loss(model: nn.Module, recipe: Recipe, step: Step) -> BatchLoss:
    """The mean loss of a batch, with what `step` adds to cross-entropy."""
    return _Loss(model, recipe, step)


@dataclass(frozen=True)
class _Loss:
    model: nn.Module
    recipe: Recipe
    step: Step

    @property
    def plain(self) -> bool:
        return not self.step.adds_loss

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        logits = _forward(self.model, x, self.recipe)
        cross_entropy = F.cross_entropy(logits, y, label_smoothing=self.recipe.label_smoothing)
        extra = self.step.loss(self.model, logits, own_labels(y))
        return cross_entropy if extra is None else cross_entropy + extra


def _forward(model: nn.Module, x: Tensor, recipe: Recipe) -> Tensor:
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.precision == "bfloat16"):
            logits: Tensor = model(x)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise BadInput(
            f"batch norm cannot be trained on a batch of {len(x)} image; "
            "use a batch_size of at least 2 and give every client at least 2 images"
        ) from error
    return logits.float() if logits.dtype == torch.bfloat16 else logits


def _drawn(
    samples: int, public_size: int | None, recipe: Recipe, rng: np.random.Generator
) -> Iterator[Tensor]:
    if public_size is None:
        return batches(samples, recipe, rng)
    return poisson_batches(samples, public_size, recipe, rng)


def poisson_batches(samples: int, size: int, recipe: Recipe, rng: np.random.Generator) -> Iterator[Tensor]:
    """As many batches as for `size` samples; each of `samples` is in one by its own draw, or in none.

    The chance is the recipe's batch size over `size`. Batches differ in size, and may be empty.
    """
    chance = recipe.batch(size) / size
    for _ in range(recipe.total_steps(size)):
        yield torch.from_numpy(np.flatnonzero(rng.random(samples) < chance))


def batches(samples: int, recipe: Recipe, rng: np.random.Generator) -> Iterator[Tensor]:
    """Positions of each training batch, reshuffled every epoch; the last batch of an epoch may be smaller."""
    last = recipe.last_batch(samples)
    for _ in range(recipe.epochs):
        order = torch.from_numpy(rng.permutation(samples))
        yield from order[: samples - last].split(recipe.batch(samples)) if last < samples else ()
        yield order[samples - last :]
