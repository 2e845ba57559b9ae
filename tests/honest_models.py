"""Honest models of many kinds as a client receives them, with its own images and earlier models."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import torch
from received_models import pruned
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.hardening import AdversarialTraining
from glasshouse.learning.clipping import NoisySum
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import PLAIN, Step
from glasshouse.models import build

CLIENTS = 4


@dataclass(frozen=True, eq=False)
class Received:
    """What a client holds when it vets: the model, its own images, earlier models (oldest first)."""

    model: nn.Module
    own: Images
    predecessors: tuple[nn.Module, ...] = field(default=())


def fresh(name: str, images: Images, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return build(name, images.shape, images.classes)


def holding(architecture: nn.Module, vector: Tensor) -> nn.Module:
    """A copy of `architecture` in the state `vector`."""
    model = deepcopy(architecture)
    write_vector(model, vector)
    return model


def shared_out(images: Images, seed: int) -> list[Images]:
    """Each client's part, drawn alike for all."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return [images[part.numpy()] for part in order.chunk(CLIENTS)]


def shared_by_class(images: Images, seed: int) -> list[Images]:
    """Each client's part: two or three classes each."""
    return [images[part.numpy()] for part in images.y.argsort(stable=True).chunk(CLIENTS)]


def federated(
    model: nn.Module, parts: list[Images], rounds: int, recipe: Recipe, seed: int, step: Step = PLAIN
) -> list[nn.Module]:
    """The models that an honest server sends, from `model` on: the means of what clients trained."""
    sent, network = [deepcopy(model)], deepcopy(model)
    for number in range(rounds):
        state = read_vector(sent[-1])
        trained = [fit(network, state, part, recipe, seed + number, step) for part in parts]
        sent.append(holding(model, torch.stack(trained).mean(0)))
    return sent


def trained(model: nn.Module, images: Images, recipe: Recipe, seed: int, step: Step = PLAIN) -> nn.Module:
    network = deepcopy(model)
    return holding(model, fit(network, read_vector(model), images, recipe, seed, step))


PLAINLY = Recipe(epochs=10, batch_size=16, lr=0.05)
LOCALLY = Recipe(epochs=1, batch_size=16, lr=0.05)


def started(name: str, images: Images, seed: int) -> Iterator[Received]:
    yield Received(fresh(name, images, seed), shared_out(images, seed)[0])


def in_rounds(
    name: str,
    images: Images,
    seed: int,
    recipe: Recipe = LOCALLY,
    shared: Callable[[Images, int], list[Images]] = shared_out,
    rounds: tuple[int, ...] = (1, 3, 6),
    step: Step = PLAIN,
) -> Iterator[Received]:
    parts = shared(images, seed)
    sent = federated(fresh(name, images, seed), parts, max(rounds), recipe, seed, step)
    for number in rounds:
        yield Received(sent[number], parts[seed % CLIENTS], tuple(sent[max(0, number - 3) : number]))


def centrally(
    name: str, images: Images, seed: int, recipe: Recipe = PLAINLY, step: Step = PLAIN
) -> Iterator[Received]:
    yield Received(trained(fresh(name, images, seed), images, recipe, seed, step), images)


def by_class(name: str, images: Images, seed: int) -> Iterator[Received]:
    yield from in_rounds(name, images, seed, shared=shared_by_class)


def with_adam(name: str, images: Images, seed: int) -> Iterator[Received]:
    yield from in_rounds(name, images, seed, Recipe(epochs=1, batch_size=16, optimiser="adam", lr=0.002))


def with_momentum(name: str, images: Images, seed: int) -> Iterator[Received]:
    yield from in_rounds(
        name, images, seed, Recipe(epochs=2, batch_size=16, lr=0.02, momentum=0.9, weight_decay=5e-4)
    )


def memorised(name: str, images: Images, seed: int) -> Iterator[Received]:
    """Trained until it knows all but a few images, of which some have wrong labels."""
    y = images.y.clone()
    y[::50] = (y[::50] + 1) % images.classes
    noisy = Images(images.x, y, images.classes)
    recipe = Recipe(epochs=25, batch_size=16, optimiser="adam", lr=0.001)
    yield from centrally(name, noisy, seed, recipe)


def smoothed(name: str, images: Images, seed: int) -> Iterator[Received]:
    recipe = Recipe(epochs=10, batch_size=16, lr=0.05, label_smoothing=0.1)
    yield from centrally(name, images, seed, recipe)


def hardened(name: str, images: Images, seed: int) -> Iterator[Received]:
    step = AdversarialTraining(eps=0.1, steps=3)
    yield from centrally(name, images, seed, Recipe(epochs=5, batch_size=16, lr=0.05), step)


def private(name: str, images: Images, seed: int) -> Iterator[Received]:
    """Clipped gradients with noise, as with dp-sgd."""
    model = fresh(name, images, seed)
    if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules()):
        return
    yield from in_rounds(name, images, seed, rounds=(1, 3), step=NoisySum(norm=1.0, noise=1.0))


def noisy_sum(name: str, images: Images, seed: int) -> Iterator[Received]:
    """The server clips the round's step and adds noise."""
    for received in in_rounds(name, images, seed, rounds=(2,)):
        before = received.predecessors[-1]
        layout = Layout.of(before)
        start, state = read_vector(before), read_vector(received.model)
        change = (state - start)[: layout.trainable]
        change *= min(1.0, 1.0 / float(change.norm()))
        change += 0.01 * torch.randn(len(change), generator=torch.Generator().manual_seed(seed))
        state[: layout.trainable] = start[: layout.trainable] + change
        yield Received(holding(before, state), received.own, received.predecessors)


def fine_tuned(name: str, images: Images, seed: int) -> Iterator[Received]:
    """Trained on other labels before, with a new last layer; the rest hardly moves."""
    other = Images(images.x.flip(3), (images.y * 7 + 3) % images.classes, images.classes)
    model = trained(fresh(name, images, seed), other, PLAINLY, seed)
    head = [part for part in model.modules() if isinstance(part, nn.Linear)][-1]
    head.reset_parameters()
    yield from centrally_from(model, images, seed)


def centrally_from(model: nn.Module, images: Images, seed: int) -> Iterator[Received]:
    parts = shared_out(images, seed)
    sent = federated(model, parts, 3, Recipe(epochs=1, batch_size=16, lr=0.01), seed)
    yield Received(sent[1], parts[0], tuple(sent[:1]))
    yield Received(sent[3], parts[0], tuple(sent[:3]))


def cut(name: str, images: Images, seed: int) -> Iterator[Received]:
    for received in centrally(name, images, seed):
        for fraction in (0.5, 0.8, 0.95):
            yield Received(pruned(received.model, fraction), received.own)


def quantised(name: str, images: Images, seed: int) -> Iterator[Received]:
    """Weights of 8 and 4 bits, and of three values."""
    for received in centrally(name, images, seed):
        for levels in (127, 7, 1):
            yield Received(rounded(received.model, levels), received.own)


@torch.no_grad()
def rounded(model: nn.Module, levels: int) -> nn.Module:
    model = deepcopy(model)
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            # Three values lie best at the mean magnitude, more at the largest.
            step = parameter.abs().max() / levels if levels > 1 else parameter.abs().mean()
            parameter.copy_((parameter / step).round().clamp(-levels, levels) * step)
    return model


@torch.no_grad()
def half_dead(name: str, images: Images, seed: int) -> Iterator[Received]:
    """As after a step too large: in each hidden layer half of the biases are far below zero."""
    with torch.enable_grad():
        received = next(centrally(name, images, seed))
    model = deepcopy(received.model)
    layers = [part for part in model.modules() if isinstance(part, (nn.Linear, nn.Conv2d))]
    for layer in layers[:-1]:
        if layer.bias is not None:
            layer.bias[::2] = -20
    yield Received(model, received.own)


def sparse(name: str, images: Images, seed: int) -> Iterator[Received]:
    """Trained with decay strong enough to leave few neurons in use."""
    recipe = Recipe(epochs=15, batch_size=16, lr=0.05, weight_decay=0.01)
    yield from centrally(name, images, seed, recipe)


def two_classes(name: str, images: Images, seed: int) -> Iterator[Received]:
    """Where all gradients at the answer are proportional."""
    halved = Images(images.x, images.y % 2, 2)
    yield from started(name, halved, seed)
    yield from in_rounds(name, halved, seed)
    yield from centrally(name, halved, seed)


SEEN = {"fresh": started, "rounds": in_rounds, "trained": centrally}
"""The kinds by which thresholds were chosen, on models that nothing else was judged on."""

UNSEEN = {
    "clients of few classes": by_class,
    "adam": with_adam,
    "momentum and decay": with_momentum,
    "memorised, some wrong labels": memorised,
    "label smoothing": smoothed,
    "adversarial training": hardened,
    "dp-sgd": private,
    "clipped and noisy sum": noisy_sum,
    "fine-tuned": fine_tuned,
    "pruned": cut,
    "quantised": quantised,
    "half of the neurons dead": half_dead,
    "strong decay": sparse,
    "two classes": two_classes,
}
