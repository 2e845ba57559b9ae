"""The models under attack: each trained under its own defence, from the same images and first weights."""

import json
import zlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.defences import make_defences
from glasshouse.defences.defence import Defence, Stack
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.evaluate import accuracy
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.learning.step import PLAIN, Step, compose
from glasshouse.models.loading import seeded_model
from glasshouse.store import is_there, read_tensors, slug, write_tensors
from glasshouse.studies.study import Workplace

CURVED = 500
"""Test images whose accuracy is looked at after each epoch."""

SEMI_TRAINED = 4
"""S_pri is taken of a network that was trained for one in so many epochs."""


@dataclass(frozen=True)
class Learner:
    """A network, how many images it is trained on for how many epochs, and how many it is tested on.

    Where a `side` is given, larger images are reduced to it by averaging pixels. As in the papers momentum is
    Nesterov's, and the rate falls to a tenth at 3/8, 5/8 and 7/8 of the way.
    """

    data: str
    model: str
    images: int
    epochs: int
    test: int
    lr: float = 0.05
    batch: int = 64
    side: int | None = None
    precision: Literal["float32", "bfloat16"] = "bfloat16"

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            epochs=self.epochs,
            batch_size=self.batch,
            lr=self.lr,
            momentum=0.9,
            weight_decay=5e-4,
            schedule="steps",
            precision=self.precision,
            nesterov=True,
        )

    @property
    def semi_trained(self) -> "Learner":
        """The same network after a quarter of the epochs."""
        return replace(self, epochs=max(1, self.epochs // SEMI_TRAINED))

    @property
    def note(self) -> str:
        """What a reader of any finding should know of the model."""
        reduced = f", reduced to {self.side}x{self.side} pixels" if self.side else ""
        return f"trained on {self.images} images{reduced} for {self.epochs} epochs"


@dataclass(frozen=True, eq=False)
class Materials:
    """Images to train on, and to test: the first of them are the victims of attacks."""

    train: Images
    test: Images


@lru_cache(maxsize=2)
def materials(data: str, images: int, test: int, side: int | None) -> Materials:
    """The images of a data set, the same for all networks and seeds; all classes are in proportion."""
    whole, rng = load(data), numpy_rng(0, "ats", data)
    training, testing = whole.draw([images], [test], rng)
    parts = [whole.pool[training], whole.pool[rng.permutation(testing)]]
    return Materials(*(part if side is None else _reduced(part, side) for part in parts))


def materials_of(learner: Learner) -> Materials:
    """The images of a learner."""
    return materials(learner.data, learner.images, learner.test, learner.side)


def _reduced(images: Images, side: int) -> Images:
    factor = images.shape[1] // side
    return replace(images, x=F.avg_pool2d(images.x, factor))


@dataclass(frozen=True)
class Epoch:
    """The mean training loss during an epoch, and the test accuracy after it."""

    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Trained:
    """A network in eval mode, and its course of training."""

    learner: Learner
    network: nn.Module
    course: tuple[Epoch, ...]


def first_network(learner: Learner, seed: int) -> nn.Module:
    """The network with its first weights, which are the same under all defences."""
    images = materials_of(learner).train
    return seeded_model(learner.model, images.shape, images.classes, derive(seed, "weights"))


def trained(learner: Learner, defence: str, place: Workplace) -> Trained:
    """The network trained under `defence`: from the folder that all cells share, or now."""
    network = first_network(learner, place.seed)
    told_apart = zlib.crc32(f"{learner} {defence}".encode())
    stem = slug(f"{learner.data}-{learner.model}-{learner.epochs}-epochs-{told_apart:08x}")
    file = place.shared / "models" / f"{stem}-seed-{place.seed}.safetensors"
    if not is_there(file):
        vector, course = _train(learner, network, defence, place.seed)
        numbers = [[epoch.loss, epoch.accuracy] for epoch in course]
        write_tensors(file, {"vector": vector}, {"course": json.dumps(numbers)})
    tensors, notes = read_tensors(file)
    write_vector(network, tensors["vector"])
    course = [Epoch(*numbers) for numbers in json.loads(notes["course"])]
    return Trained(learner, network.eval(), tuple(course))


def _train(learner: Learner, network: nn.Module, defence: str, seed: int) -> tuple[Tensor, list[Epoch]]:
    images, recipe = materials_of(learner), learner.recipe
    stack, layout = make_defences(defence), Layout.of(network)
    watching = Watching(images.test[:CURVED], recipe.total_steps(len(images.train)) // recipe.epochs)
    step = compose(
        stack.training(), PerturbedGradients(stack, layout) if perturbs(stack) else PLAIN, watching
    )
    learning = laid_out(deepcopy(network))
    start = read_vector(network)
    vector = fit(learning, start, images.train, recipe, derive(seed, "training"), step)
    watching.end_epoch(learning)
    return vector, watching.course


def perturbs(stack: Stack) -> bool:
    """Whether one of the defences changes gradients."""
    return any(type(defence).on_update is not Defence.on_update for defence in stack.defences)


@dataclass(frozen=True)
class PerturbedGradients(Step):
    """Each batch's gradient as the defences would have it sent: where every step is an update."""

    stack: Stack
    layout: Layout

    def steer(self, parameters: list[nn.Parameter], rng: torch.Generator) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        vector = torch.cat([gradient.reshape(-1) for gradient in gradients])
        whole = torch.cat([vector, vector.new_zeros(self.layout.size - len(vector))])
        sent = self.stack.on_update(whole, self.layout, rng)
        pieces = sent[: len(vector)].split([gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces):
            gradient.copy_(piece.view(gradient.shape))


class Watching(Step):
    """Notes the training loss of each epoch, and the accuracy on `test` after it; it changes nothing."""

    def __init__(self, test: Images, batches: int) -> None:
        self.course: list[Epoch] = []
        self._test, self._batches = test, batches
        self._losses: list[float] = []

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        if len(self._losses) == self._batches:
            self.end_epoch(model)
        return x

    def loss(self, model: nn.Module, logits: Tensor, y: Tensor) -> Tensor | None:
        self._losses.append(F.cross_entropy(logits.detach(), y).item())
        return None

    def end_epoch(self, model: nn.Module) -> None:
        """Note what the epoch came to; the model is in the mode in which it was."""
        training = model.training
        reached = accuracy(model, self._test)
        model.train(training)
        self.course.append(Epoch(sum(self._losses) / len(self._losses), reached))
        self._losses = []


def thirds(names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The tensors of a network's first and of its last third, in the order in which images pass them."""
    third = max(1, len(names) // 3)
    yield "shallow", names[:third]
    yield "deep", names[-third:]
