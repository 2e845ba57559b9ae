"""From an update to what an inversion has to explain: the network in its client's mode, and the gradient."""

import torch
from torch import Tensor, nn

from glasshouse.attacks.inversion.inversion import joined
from glasshouse.attacks.inversion.priors import LayerStatistics, running_statistics
from glasshouse.attacks.inversion.target import LocalTraining, Target, drawn_batches
from glasshouse.attacks.inversion.updates import (
    AVERAGED,
    COUPLED,
    AttackedUpdate,
    Dropout,
    frozen_network,
    mixes_batches,
    training_network,
)

MASKED = "dropout drew masks that the attacker does not know, and leaves out"


def make_target(
    update: AttackedUpdate, labels: Tensor | None, count: int, simulate: int, rng: torch.Generator
) -> tuple[Target, str | None]:
    """What `count` images with `labels` have to explain, and what is only approximated, in words.

    Up to `simulate` local steps of one client are simulated, where all of its images are sought.
    """
    protocol, whole = update.protocol, count == update.samples
    simulated = 1 < update.steps <= simulate and whole and len(update.clients) == 1
    one_batch = whole and (update.steps == 1 or simulated)
    network, note = _network(update, one_batch)
    gradient, training = update.gradient(), None
    if simulated:
        training = LocalTraining(protocol.recipe, drawn_batches(count, protocol.recipe, rng))
        gradient = -update.delta / protocol.recipe.effective_rate(count)
        note = joined([note, f"{update.steps} local steps are simulated, with batches in another order"])
    elif update.steps > 1:
        note = joined([note, AVERAGED])
    if not whole:
        note = joined([note, f"{count} images were sought to explain the gradient of {update.samples}"])
    target = Target(
        network,
        protocol.layout,
        gradient,
        protocol.shape,
        protocol.classes,
        count,
        labels,
        training=training,
        smoothing=protocol.recipe.label_smoothing,
        clip=protocol.recipe.clip_grad_norm,
    )
    return target, note


def sent_statistics(update: AttackedUpdate) -> dict[str, LayerStatistics]:
    """The statistics that the model carried when it was sent."""
    return running_statistics(training_network(update.protocol, update.sent))


def statistics_in_update(update: AttackedUpdate) -> dict[str, LayerStatistics]:
    """The mean statistics of the clients' batches, which the update's buffers carry."""
    largest = max(update.sizes)
    return running_statistics(frozen_network(update.protocol, update.sent, update.delta, largest))


def _network(update: AttackedUpdate, one_batch: bool) -> tuple[nn.Module, str | None]:
    """The network as the client ran it, as far as the attacker can know, and what it cannot, in words.

    Where all images of a batch are sought, batch norm goes by that batch; else by the mean statistics that
    the update carries.
    """
    protocol = update.protocol
    modules = list(protocol.architecture.modules())
    if protocol.recipe.mode == "eval":
        return training_network(protocol, update.sent), None
    note = MASKED if any(isinstance(module, Dropout) and module.p for module in modules) else None
    if one_batch or not mixes_batches(protocol.architecture):
        return training_network(protocol, update.sent), note
    frozen = frozen_network(protocol, update.sent, update.delta, max(update.sizes))
    return frozen, joined([note, COUPLED])
