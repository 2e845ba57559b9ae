"""The central baseline: one party that holds everybody's data."""

import dataclasses
from copy import deepcopy
from functools import partial

import numpy as np
from torch import Tensor, nn

from glasshouse.data.split import Split
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import fit, laid_out
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.shared import Shared


def train_centrally(
    model: nn.Module, start: Tensor, split: Split, recipe: Recipe, epochs: int, seed: int, engine: Engine
) -> Tensor:
    """Train on all members for `epochs` epochs; from the state `start` to the one returned, shape (P,)."""
    long = dataclasses.replace(recipe, epochs=epochs)
    pool = engine.share_images(split.pool)
    work = partial(_train, laid_out(deepcopy(model)), start, pool, split.members, long)
    return next(iter(engine.map(work, [seed])))


def _train(
    model: nn.Module, start: Tensor, pool: Shared, members: np.ndarray, recipe: Recipe, seed: int
) -> Tensor:
    return fit(model, start, pool.get()[members], recipe, seed)
