"""The networks under attack, and the attacker's autoencoders, trained once for all cells that ask."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from glasshouse.access import Protocol
from glasshouse.attacks.crafted.cut import find_cut
from glasshouse.attacks.crafted.surrogate import Schooling, Surrogate, make_surrogate, restored
from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.data.stratify import stratified
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.models import build
from glasshouse.store import read_tensors, write_tensors
from glasshouse.studies.study import Workplace

FIRST_CLASS = 5
"""Where the attacker has some classes only, they are those from this one on: the dogs of CIFAR-10."""

TEST_SHARE = 0.4
"""The share of the images that clients hold where a data set has no test images of its own."""


@dataclass(frozen=True)
class Target:
    """A network for some data, and the images that the attacker trains its autoencoder on.

    They are a `share` of the training images, of the first `classes` classes (null: all). Clients hold test
    images, of these classes only.
    """

    network: str
    data: str
    schooling: Schooling
    share: float = 1.0
    classes: int | None = None

    @property
    def stem(self) -> str:
        """A name for its files."""
        starved = f"-{self.share:g}" if self.share < 1 else ""
        biased = f"-{self.classes}-classes" if self.classes else ""
        return f"{self.network}-{self.data}{starved}{biased}-{self.schooling.steps}-steps"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A target with its images: the attacker's, and the clients' in the order in which rounds use them.

    `seconds` are those that its autoencoder took.
    """

    target: Target
    network: nn.Module
    auxiliary: Images
    victims: Images
    surrogate: Surrogate
    seconds: float

    @property
    def neurons(self) -> int:
        """The width of the first linear layer, k."""
        layer = self.network.get_submodule(self.surrogate.cut.linear[0])
        assert isinstance(layer, nn.Linear)
        return layer.out_features

    @property
    def described(self) -> str:
        """What went into the autoencoder, in words for a finding."""
        own = self.target.schooling
        precision = ", in bfloat16" if own.half else ""
        return f"an autoencoder of them, trained for {own.steps:,} steps of {own.batch_size}{precision}"


class Targets:
    """Prepares targets, and keeps the last one and its data set in memory for the next cell that asks."""

    def __init__(self) -> None:
        self._dataset: Dataset | None = None
        self._last: tuple[tuple[Target, int, Path], Prepared] | None = None

    def of(self, target: Target, place: Workplace) -> Prepared:
        """The target, its autoencoder read from the shared folder if it is there."""
        key = (target, place.seed, place.shared)
        if self._last is None or self._last[0] != key:
            self._last = None  # before the next is made: data sets are large
            self._last = (key, self._prepare(target, place))
        return self._last[1]

    def _prepare(self, target: Target, place: Workplace) -> Prepared:
        if self._dataset is None or self._dataset.name != target.data:
            self._dataset = None
            self._dataset = load(target.data)
        auxiliary, victims = divided(self._dataset, target, place.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(place.seed, "weights"))
            network = build(target.network, auxiliary.shape, auxiliary.classes)
        surrogate, seconds = _surrogate(target, network, auxiliary, place)
        return Prepared(target, network, auxiliary, victims, surrogate, seconds)


def divided(dataset: Dataset, target: Target, seed: int) -> tuple[Images, Images]:
    """The attacker's images and the clients', which no part of the attack has seen; both shuffled."""
    train, test = dataset.train, dataset.test
    rng = numpy_rng(seed, "images")
    own, others = np.arange(len(train)), np.arange(len(test or train))
    if test is None:
        test, held = train, round(TEST_SHARE * len(train))
        own, others = stratified(train.y.numpy(), [len(train) - held, held], rng)
    chosen = (np.arange(target.classes or train.classes) + FIRST_CLASS) % train.classes
    own, others = (
        positions[np.isin(images.y.numpy()[positions], chosen)]
        for images, positions in ((train, own), (test, others))
    )
    if target.share < 1:
        own = own[stratified(train.y.numpy()[own], [round(target.share * len(own))], rng)[0]]
    return train[own[rng.permutation(len(own))]], test[others[rng.permutation(len(others))]]


def _surrogate(
    target: Target, network: nn.Module, auxiliary: Images, place: Workplace
) -> tuple[Surrogate, float]:
    """The autoencoder and the seconds that it took, from its file or trained now."""
    file = place.shared / f"{target.stem}-seed-{place.seed}.safetensors"
    protocol = Protocol(network, Layout.of(network), Recipe(), auxiliary.shape, auxiliary.classes)
    cut = find_cut(protocol)
    made_of = json.dumps({"schooling": str(target.schooling), "images": len(auxiliary)})
    if file.exists():
        tensors, notes = read_tensors(file)
        if notes.get("made_of") != made_of:
            raise BadInput(f"{file} holds an autoencoder of another kind; delete it and run again")
        seconds = float(notes["seconds"])
        return restored(protocol, cut, tensors, target.schooling, seconds), seconds
    began = time.perf_counter()
    with place.progress.task(f"autoencoder, {target.stem}", target.schooling.steps) as task:
        rng = torch_rng(place.seed, "autoencoder", target.stem)
        surrogate = make_surrogate(protocol, cut, auxiliary.x, target.schooling, rng, advance=task.advance)
    seconds = time.perf_counter() - began
    write_tensors(file, surrogate.tensors(), {"made_of": made_of, "seconds": f"{seconds:.3f}"})
    return surrogate, seconds
