"""From a schedule to a trained model: the same images and first weights for all that share a seed."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from torch import nn

from glasshouse.access import Protocol
from glasshouse.auditing.case import Case
from glasshouse.data.images import Images
from glasshouse.data.partitions import partition
from glasshouse.data.sources import load
from glasshouse.data.split import Split
from glasshouse.data.stratify import stratified
from glasshouse.defences.hardening import AdversarialTraining
from glasshouse.evidence.truth import Truth
from glasshouse.federation.federation import Federation, Plan
from glasshouse.findings import Subject
from glasshouse.learning.augment import crop_and_flip
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.learning.statistics import recount_statistics
from glasshouse.learning.step import PLAIN, Transform, compose
from glasshouse.models.loading import seeded_model
from glasshouse.studies.batch_robustness.printed import Schedule

LOOKED_AT = 100
"""Test images that a federation looks at after each round; its final model is examined on all of them."""
HARDENING = 3
"""Steps of the attack that adversarial training makes its batches with."""


@dataclass(frozen=True)
class Learner:
    """A network, its data, and how many images are trained on for how many epochs, and how many measured.

    Test images: `test` for the clean accuracy, the first `attacked` of them for the attacks, of which
    `probed` for the curvature in pixels. The Hessian is taken over `curved` training images, the same ones
    in every model of a data set.
    """

    data: str
    model: str
    train: int
    epochs: int
    test: int
    attacked: int
    curved: int
    probed: int
    precision: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True, eq=False)
class Materials:
    """The images of one data set and seed; `curved` are among the training images of every seed."""

    train: Images
    test: Images
    curved: Images


@lru_cache(maxsize=2)
def materials(learner: Learner, seed: int) -> Materials:
    """The images: the test images and `curved` are the same for all seeds, the other ones drawn by it."""
    whole = load(learner.data)
    y = whole.train.y.numpy()
    fixed = numpy_rng(0, "batch-robustness", learner.data)
    curved, test = whole.draw([learner.curved], [learner.test], fixed)
    left = np.setdiff1d(np.arange(len(y)), np.concatenate([curved, test]))
    (drawn,) = stratified(y[left], [learner.train - learner.curved], numpy_rng(seed, "training images"))
    train = whole.train[np.concatenate([curved, left[drawn]])]
    return Materials(train, whole.pool[fixed.permutation(test)], whole.train[curved])


def first_model(learner: Learner, images: Images, seed: int) -> nn.Module:
    """The network with first weights after Glorot; residual networks keep He's."""

    def glorot(model: nn.Module) -> None:
        for layer in model.modules() if not learner.model.startswith("resnet") else ():
            if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    return seeded_model(learner.model, images.shape, images.classes, derive(seed, "weights"), glorot)


def train_central(learner: Learner, schedule: Schedule, batch: int, seed: int) -> Case:
    """A model trained in one place."""
    images = materials(learner, seed).train
    model = first_model(learner, images, seed)
    reached = fit(
        laid_out(deepcopy(model)),
        read_vector(model),
        images,
        schedule.recipe(batch, learner.epochs, learner.precision),
        derive(seed, "training"),
        compose(
            Transform(crop_and_flip) if images.shape[0] == 3 else PLAIN,
            AdversarialTraining(eps=schedule.adversarial, steps=HARDENING) if schedule.adversarial else PLAIN,
        ),
    )
    write_vector(model, reached)
    return _finished(model, learner, schedule, "central", seed)


def train_federated(
    learner: Learner, schedule: Schedule, division: str, clients: int, batch: int, engine: Engine, seed: int
) -> Case:
    """A model trained by FedAvg, one local epoch a round; LR/BS counts the batches of all clients as one."""
    images = materials(learner, seed)
    nobody = np.empty(0, dtype=np.int64)
    looked_at = np.arange(len(images.train), len(images.train) + LOOKED_AT)
    shares = partition(division, images.train.y.numpy(), clients, derive(seed, "partition"))
    model = first_model(learner, images.train, seed)
    federation = Federation(
        model,
        Split(images.train.joined(images.test[:LOOKED_AT]), tuple(shares), nobody, nobody, looked_at),
        replace(schedule.recipe(batch * clients, 1, learner.precision), batch_size=batch),
        engine=engine,
        seed=derive(seed, "federation"),
    )
    history = federation.run(read_vector(model), Plan(rounds=learner.epochs))
    write_vector(model, history.vector)
    return _finished(model, learner, schedule, "fedavg", seed)


def _finished(model: nn.Module, learner: Learner, schedule: Schedule, strategy: str, seed: int) -> Case:
    """The model as a case, with what the training left open settled, and notes on what its schedule omits."""
    images = materials(learner, seed)
    attacked = images.test[: learner.attacked]
    notes = []
    if learner.precision != "float32":
        notes.append(f"trained with {learner.precision} passes")
    if recount_statistics(model, images.train):
        notes.append("batch norm's statistics counted anew over the training images")
    if schedule.adversarial:
        notes.append(f"trained on images moved by up to {schedule.adversarial:g} in {HARDENING} steps")
    return Case(
        subject=Subject(
            source="",
            defence=None,
            strategy=strategy,
            data=learner.data,
            model=learner.model,
            note="; ".join(notes) or None,
        ),
        protocol=Protocol(model, Layout.of(model), Recipe(), attacked.shape, attacked.classes),
        model=model.eval(),
        truth=Truth(attacked, test=attacked, noise_seed=seed),
    )
