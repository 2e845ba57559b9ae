"""Updates as clients send them, for attacks that invert them."""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional

from glasshouse.access import AggregateAccess, Protocol, SeenSum, SeenUpdates, UpdateAccess
from glasshouse.data.images import Images
from glasshouse.federation.updates import Update
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe

ONE_STEP = Recipe(epochs=1, batch_size=0, lr=0.1)


def seen_updates(network: nn.Module, clients: list[Images], recipe: Recipe = ONE_STEP) -> UpdateAccess:
    """One round in which each client trains `network` on its images, as a curious server sees it."""
    sent, shape = read_vector(network), clients[0].shape
    updates = tuple(
        Update(client, len(images), fit(deepcopy(network), sent, images, recipe, client) - sent)
        for client, images in enumerate(clients)
    )
    classes = deepcopy(network).eval()(torch.zeros(1, *shape)).shape[1]
    protocol = Protocol(network, Layout.of(network), recipe, shape, classes)
    return UpdateAccess(protocol, (SeenUpdates(0, sent, updates),))


def seen_sum(access: UpdateAccess) -> AggregateAccess:
    """The same round as a blind server sees it."""
    (seen,) = access.rounds
    sizes = tuple(update.samples for update in seen.updates)
    mean = torch.stack([update.delta * update.samples for update in seen.updates]).sum(0) / sum(sizes)
    summed = SeenSum(seen.number, seen.sent, mean, tuple(range(len(sizes))), sizes)
    return AggregateAccess(access.protocol, (summed,))


def gradients_of(
    network: nn.Module, images: Tensor, labels: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of `network` and the gradient of the mean cross-entropy, in the network's precision."""
    weights = dict(network.named_parameters())
    x = images.to(next(iter(weights.values())).dtype)
    gradients = torch.autograd.grad(functional.cross_entropy(network(x), labels), list(weights.values()))
    return {name: weight.detach() for name, weight in weights.items()}, dict(zip(weights, gradients))
