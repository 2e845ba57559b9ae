"""What an update says about the gradient behind it, and the mode in which that gradient was taken."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.access import AggregateAccess, Protocol, UpdateAccess
from glasshouse.errors import CannotRun
from glasshouse.learning.layout import write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models.freezing import stays_in_eval

BatchNorm = nn.modules.batchnorm._BatchNorm
Dropout = nn.modules.dropout._DropoutNd

AVERAGED = "several local steps are read as one gradient, their mean"
"""What an attack says where the clients take more than one step in a round."""

COUPLED = "batch norm mixes the sample with its batch, of which only mean statistics are known"
"""What an attack says that inverts one sample of a batch through batch norm."""

MIXED = "mix-up drew partners and weights that the attacker does not know, and images are sought unmixed"
"""What an inversion says whose clients train on mixed images."""


AUGMENTED = "clients changed their images at random, and images are sought as they were then"
"""What an inversion says whose clients augment their images."""


@dataclass(frozen=True, eq=False)
class AttackedUpdate:
    """One thing to invert: the model `sent`, shape (P,), and the mean `delta` of its clients' changes.

    A curious server has the update of one client, a blind one the sum of several; `sizes` are their sample
    counts.
    """

    protocol: Protocol
    round: int
    sent: Tensor
    delta: Tensor
    clients: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def samples(self) -> int:
        """How many images are behind it."""
        return sum(self.sizes)

    @property
    def steps(self) -> int:
        """How many local steps a client took at most."""
        return max(map(self.protocol.recipe.total_steps, self.sizes))

    def gradient(self) -> Tensor:
        """The mean gradient over all images and steps, shape (P,); 0 for buffers.

        Exact for one step of SGD on all of a client's images; after several it is what the steps' gradients,
        weighted by how long they acted, are on average.
        """
        recipe = self.protocol.recipe
        check_plain_steps(recipe)
        rate = sum(size * recipe.effective_rate(size) for size in self.sizes) / self.samples
        gradient = (mean_decay(self.protocol, self.sent, self.sizes) - self.delta) / rate
        gradient[self.protocol.layout.trainable :] = 0
        return gradient


def rounding(update: AttackedUpdate, name: str) -> float:
    """The standard deviation of the rounding in one tensor of an update's gradient.

    An update is the difference of two models, each rounded to its own size, not to that of the difference. A
    client that computes in bfloat16 has rounded the gradient itself.
    """
    recipe, named = update.protocol.recipe, update.protocol.layout.named
    rate = sum(size * recipe.effective_rate(size) for size in update.sizes) / update.samples
    noise = torch.finfo(update.delta.dtype).eps * _root_mean_square(named(update.sent)[name]) / rate
    if recipe.precision == "bfloat16":
        noise += torch.finfo(torch.bfloat16).eps * _root_mean_square(named(update.delta)[name]) / rate
    return noise


def _root_mean_square(tensor: Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


def attacked_updates(access: UpdateAccess | AggregateAccess, count: int) -> list[AttackedUpdate]:
    """Up to `count` updates, or sums, of the first and the last round seen; the smallest clients' first."""
    ends = list(dict.fromkeys((0, len(access.rounds) - 1)))
    shares = [-(-count // len(ends)), count // len(ends)][: len(ends)]
    return [update for end, share in zip(ends, shares) for update in _updates_of_round(access, end)[:share]]


def conditions(updates: Sequence[AttackedUpdate], *, given: bool) -> str:
    """How the clients trained behind these updates, and whether the attacker was `given` their labels."""
    recipe = updates[0].protocol.recipe
    steps, samples = (_range([getattr(update, key) for update in updates]) for key in ("steps", "samples"))
    taken = (
        f"{steps} local step{'' if steps == '1' else 's'} on {samples} image{'' if samples == '1' else 's'}"
    )
    smoothed = f", {recipe.label_smoothing:g} of each label spread" if recipe.label_smoothing else ""
    layout = updates[0].protocol.layout
    remarks = {
        f"images are sought by the gradient of what is sent: {layout.sent}": layout.frozen,
        MIXED: recipe.mix_up,
        f"{AUGMENTED} ({recipe.augment})": recipe.augment,
        f"gradients were cut to the length {recipe.clip_grad_norm:g}": recipe.clip_grad_norm,
        "gradients were computed in bfloat16": recipe.precision == "bfloat16",
    }
    remarked = "".join(f"; {remark}" for remark, applies in remarks.items() if applies)
    labels = f"labels {'given' if given else 'unknown'}{smoothed}{remarked}"
    return f"as the clients trained: {taken}, {recipe.mode} mode, {labels}"


def _range(counts: Sequence[int]) -> str:
    """From the lowest to the highest.

    >>> _range([4, 2, 3]), _range([5])
    ('2 to 4', '5')
    """
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _updates_of_round(access: UpdateAccess | AggregateAccess, place: int) -> list[AttackedUpdate]:
    protocol = access.protocol.in_round(access.rounds[place].number)
    if isinstance(access, AggregateAccess):
        summed = access.rounds[place]
        return [
            AttackedUpdate(protocol, summed.number, summed.sent, summed.average, summed.clients, summed.sizes)
        ]
    seen = access.rounds[place]
    return [
        AttackedUpdate(protocol, seen.number, seen.sent, update.delta, (update.client,), (update.samples,))
        for update in sorted(seen.updates, key=lambda update: update.samples)
    ]


def check_plain_steps(recipe: Recipe) -> None:
    """Raise `CannotRun` for recipes whose updates are no sums of gradients."""
    if recipe.optimiser != "sgd":
        raise CannotRun(
            f"the clients train with {recipe.optimiser}, which rescales each entry, so their updates do not "
            "add up like gradients, as those of sgd do"
        )


def mixes_batches(network: nn.Module) -> bool:
    """Whether batch norm goes by the batch in train mode, as it does unless it is frozen."""
    return any(isinstance(layer, BatchNorm) and not stays_in_eval(layer) for layer in network.modules())


def check_scale(recipe: Recipe) -> None:
    """Raise `CannotRun` where updates are sums of gradients whose lengths nobody knows."""
    check_plain_steps(recipe)
    if recipe.clip_grad_norm:
        raise CannotRun(
            f"the clients cut gradients to the length {recipe.clip_grad_norm:g} (clip_grad_norm), and the "
            "attack reads lengths; one that reads directions alone may still find what it seeks"
        )


def one_step(recipe: Recipe, sizes: Sequence[int]) -> bool:
    """Whether clients with these sample counts take a single step on all of their data."""
    return all(recipe.total_steps(size) == 1 for size in sizes)


def mean_decay(protocol: Protocol, sent: Tensor, sizes: Sequence[int]) -> Tensor:
    """How weight decay alone moves the mean model of clients with `sizes` images, shape (P,)."""
    recipe, moved = protocol.recipe, torch.zeros_like(sent)
    start = sent[: protocol.layout.trainable]
    for size in sizes if recipe.weight_decay else ():
        weights = start.clone()
        weights.grad = torch.zeros_like(weights)
        optimiser = recipe.make_optimiser([weights])
        for rate in recipe.rates(size):
            optimiser.param_groups[0]["lr"] = rate
            optimiser.step()
        moved[: len(start)] += (weights - start) * (size / sum(sizes))
    return moved


def training_network(protocol: Protocol, vector: Tensor) -> nn.Module:
    """The network as a client trains it, in the recipe's mode; without dropout: its masks are unknown."""
    network = deepcopy(protocol.architecture)
    write_vector(network, vector)
    network.train(protocol.recipe.mode == "train")
    for module in network.modules():
        if isinstance(module, Dropout):
            module.eval()
    return network


def frozen_network(protocol: Protocol, vector: Tensor, delta: Tensor, samples: int) -> nn.Module:
    """The network in eval mode, with the mean statistics of the clients' batches, which `delta` carries.

    A client of `samples` images moves its running statistics towards its batches'. Seen from one of them, the
    others' images enter batch norm through nothing else, but for their part in its derivative.
    """
    frozen = vector.clone()
    named, changes = protocol.layout.named(frozen), protocol.layout.named(delta)
    steps = protocol.recipe.total_steps(samples)
    for name, module in protocol.architecture.named_modules():
        if isinstance(module, BatchNorm) and module.momentum:
            share = 1 - (1 - module.momentum) ** steps
            for kind, least in (("running_mean", -torch.inf), ("running_var", 0.0)):
                buffer = f"{name}.{kind}".lstrip(".")
                if buffer in named:
                    named[buffer].add_(changes[buffer] / share).clamp_(min=least)
    network = deepcopy(protocol.architecture)
    write_vector(network, frozen)
    return network.eval()
