"""What policies are scored with: images, a network as it begins, and one that has begun to learn."""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.learning.step import Step
from glasshouse.progress import Progress, Task
from glasshouse.runfolder import RunFolder
from glasshouse.store import is_there, read_tensors, write_tensors

SEMI_TRAINED = 0.1
"""The share of the training images that the network is trained on."""

RECIPE = Recipe(epochs=15, batch_size=32, lr=0.05, momentum=0.9)
"""How it is trained: for a quarter of the papers' 60 epochs."""

BATCHES, BATCH = 10, 100
"""Batches of images that S_acc looks at, and their size before one image of each class is kept."""


@dataclass(frozen=True, eq=False)
class Material:
    """What scores are taken with: both networks in eval mode, and disjoint images for each score."""

    untrained: nn.Module
    semi_trained: nn.Module
    batches: tuple[Images, ...]
    images: Images


def prepare(
    dataset: Dataset, model: nn.Module, images: int, seed: int, folder: RunFolder, progress: Progress
) -> Material:
    """Draw `images` for S_pri and batches for S_acc, and train the network on a tenth of the training set.

    A network that is trained already is read from `folder`.
    """
    rng = numpy_rng(seed, "images")
    pool, size = dataset.pool, len(dataset.train)
    trained_on = max(round(SEMI_TRAINED * size), dataset.train.classes)
    scored = len(pool) - size if dataset.test is not None else size - trained_on
    if images > scored:
        raise BadInput(
            f"images = {images}: {dataset.name} has {scored} left to score policies on; ask for at most that"
        )
    training, scoring = dataset.draw([trained_on], [images], rng)
    batches = tuple(dataset.train[rng.permutation(size)[:BATCH]] for _ in range(BATCHES))
    file = folder.work / "semi-trained.safetensors"
    if not is_there(file):
        label = f"semi-training on {trained_on} images"
        with progress.task(label, RECIPE.total_steps(trained_on)) as task:
            network, start = laid_out(deepcopy(model)), read_vector(model)
            vector = fit(network, start, pool[training], RECIPE, derive(seed, "training"), _Counted(task))
            write_tensors(file, {"vector": vector})
    return Material(
        _ready(model, read_vector(model)),
        _ready(model, read_tensors(file)[0]["vector"]),
        batches,
        pool[rng.permutation(scoring)],  # so that the first of them are of all classes
    )


def _ready(model: nn.Module, vector: Tensor) -> nn.Module:
    copy = laid_out(deepcopy(model)).eval()
    write_vector(copy, vector)
    return copy


@dataclass(frozen=True)
class _Counted(Step):
    """Plain training whose steps are shown."""

    task: Task

    def steer(self, parameters: list[nn.Parameter], rng: torch.Generator) -> None:
        self.task.advance()
