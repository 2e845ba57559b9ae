"""From a setting to a trained model: the same images and first weights for all that share a seed."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from glasshouse.data.images import Images
from glasshouse.data.partitions import partition
from glasshouse.data.sources import load
from glasshouse.data.split import Split
from glasshouse.data.stratify import stratified
from glasshouse.defences.hardening import AdversarialTraining
from glasshouse.federation.federation import Federation, Plan
from glasshouse.learning.augment import crop_and_flip
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.learning.statistics import recount_statistics
from glasshouse.learning.step import PLAIN, Transform, compose
from glasshouse.models.loading import load_model
from glasshouse.studies.batch_robustness.scales import Federated, Row, Sizes
from glasshouse.studies.batch_robustness.settings import Setting

EXAMINED = 100
"""Test images that a federation looks at after each round; its final model is examined on all of them."""

HARDENING = 3
"""Steps of the attack that adversarial training makes its batches with."""


@dataclass(frozen=True, eq=False)
class Materials:
    """The images of one data set and seed; `curved` are among the training images of every seed."""

    train: Images
    test: Images
    curved: Images


@dataclass(frozen=True, eq=False)
class Trained:
    """A model in eval mode and, in words, what was done beyond its setting."""

    model: nn.Module
    assumes: tuple[str, ...] = ()


@lru_cache(maxsize=2)
def materials(data: str, sizes: Sizes, seed: int) -> Materials:
    """The images: the test images and `curved` are the same for all seeds, the other ones drawn by it."""
    whole = load(data)
    y = whole.train.y.numpy()
    fixed = numpy_rng(0, "batch-robustness", data)
    if whole.test is None:
        core, tested = stratified(y, [sizes.curved, sizes.test], fixed)
        taken, source = np.concatenate([core, tested]), whole.train
    else:
        (core,) = stratified(y, [sizes.curved], fixed)
        (tested,) = stratified(whole.test.y.numpy(), [sizes.test], fixed)
        taken, source = core, whole.test
    left = np.setdiff1d(np.arange(len(y)), taken)
    (drawn,) = stratified(y[left], [sizes.train - sizes.curved], numpy_rng(seed, "training images"))
    train = whole.train[np.concatenate([core, left[drawn]])]
    return Materials(train, source[fixed.permutation(tested)], whole.train[core])


def train_central(row: Row, setting: Setting, batch: int, seed: int) -> Trained:
    """A model trained in one place."""
    images = materials(row.data, row.sizes, seed).train
    model = started(row.model, images, seed)
    reached = fit(
        laid_out(deepcopy(model)),
        read_vector(model),
        images,
        setting.recipe(batch, row.sizes.epochs, row.sizes.precision),
        derive(seed, "training"),
        compose(
            Transform(crop_and_flip) if images.shape[0] == 3 else PLAIN,
            AdversarialTraining(eps=setting.adversarial, steps=HARDENING) if setting.adversarial else PLAIN,
        ),
    )
    write_vector(model, reached)
    return Trained(model.eval(), _remarks(model, images, row.sizes, setting))


def train_federated(
    row: Federated, setting: Setting, division: str, clients: int, engine: Engine, seed: int
) -> Trained:
    """A model trained by FedAvg, one local epoch a round; LR/BS counts the batches of all clients as one."""
    images, test = materials(row.data, row.sizes, seed).train, materials(row.data, row.sizes, seed).test
    hands = partition(division, images.y.numpy(), clients, derive(seed, "partition"))
    held = Split(
        _joined(images, test[:EXAMINED]),
        tuple(hands),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.int64),
        np.arange(len(images), len(images) + EXAMINED),
    )
    model = started(row.model, images, seed)
    recipe = setting.recipe(row.batch * clients, 1, row.sizes.precision)
    local = Federation(
        model,
        held,
        replace(recipe, batch_size=row.batch),
        engine=engine,
        seed=derive(seed, "federation"),
    )
    history = local.run(read_vector(model), Plan(rounds=row.sizes.epochs))
    write_vector(model, history.vector)
    return Trained(model.eval(), _remarks(model, images, row.sizes, setting))


def started(name: str, images: Images, seed: int) -> nn.Module:
    """The network with first weights after Glorot; residual networks keep He's, which are their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        model = load_model(name, images.shape, images.classes)
        for layer in model.modules() if not name.startswith("resnet") else ():
            if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
    return model


def _remarks(model: nn.Module, images: Images, sizes: Sizes, setting: Setting) -> tuple[str, ...]:
    """Settle what the training left open, and say what was done beyond the paper's setting."""
    words = []
    if sizes.precision != "float32":
        words.append(f"trained with {sizes.precision} passes")
    if recount_statistics(model, images):
        words.append("batch norm's statistics counted anew over the training images")
    if setting.adversarial:
        words.append(f"trained on images moved by up to {setting.adversarial:g} in {HARDENING} steps")
    return tuple(words)


def _joined(first: Images, second: Images) -> Images:
    return Images(torch.cat([first.x, second.x]), torch.cat([first.y, second.y]), first.classes, first.names)
