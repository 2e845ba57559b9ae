"""A layer that imprints its inputs on its own gradient, put before the network that the clients agreed on.

All rows of the layer measure the brightness of the image, each against a threshold of its own; its answer is
added to one fixed picture, in one fixed direction, so that a sample has the same weight in all rows: linear
leakage. The columns of the second layer are equal but for their signs, which follow + - - +. The signs are
known, so nothing is lost by them, and the sum over the rows stays within a few bins' width instead of growing
with their number: the network behind sees nearly the same picture for every sample and its answer hardly
moves however loud the gradient is. The second layer is frozen, as layers are in fine-tuning, and where
clients take several steps so is the network behind it.
"""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from glasshouse.access import BlindServerAccess, Protocol, ServerAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.crafted.imprint_gain import Calibration, choose_gain, fixed_picture
from glasshouse.attacks.crafted.leakage import Bins, Law, bin_sums, thresholds
from glasshouse.attacks.inversion.updates import check_plain_steps, mean_decay, one_step
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun, reason_of
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import write_vector
from glasshouse.options import check_choice, check_whole

CALIBRATION = 256
"""The most auxiliary images that the gain is measured on."""
SLACK = 3
"""How many bins apart a sample may turn up where clients take several steps."""


@dataclass(frozen=True, kw_only=True)
class ImprintAttack(Attack):
    """One round with clients that train a network behind an imprint layer of `bins` rows.

    A member builds the imprint, may send some clients a model of their own, and rebuilds images from the
    update. Clients are spread over `slots`; with one they all share the layer.
    """

    name: ClassVar[str]
    bins: int = 1024
    slots: int = field(default=1, init=False)
    law: Law = "empirical"
    family = "reconstruction"
    needs = (BlindServerAccess,)
    knows = ("auxiliary",)
    changes_network = True

    def __post_init__(self) -> None:
        check_whole(self.name, "bins", self.bins, 2, 65536)
        check_whole(self.name, "slots", self.slots, 1, 1024)
        check_choice(self.name, "law", self.law, get_args(Law))

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        return reason_of(check_plain_steps, protocol.recipe)

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        assert knowledge.auxiliary is not None
        started = time.perf_counter()
        if access.rebuilt is None:
            raise CannotRun("the server may not change the network, and an imprint layer is a change")
        imprint = self.imprint(access, knowledge.auxiliary)
        serving = access.rebuilt(imprint.network)
        apart = self.models_apart(serving)
        crafted = time.perf_counter()
        delivery = serving.exchange(serving.current, range(len(access.sizes)), apart)
        received = time.perf_counter()
        x = self.rebuild(serving, imprint, delivery)
        online = time.perf_counter() - received
        return Reconstructions((Rebuilt(x, delivery.clients),), crafted - started, online, self.note(access))

    @abstractmethod
    def imprint(self, access: ServerAccess, auxiliary: Images) -> "Imprint":
        """The network to send."""

    def models_apart(self, serving: ServerAccess) -> Mapping[int, Tensor]:
        """The models of clients that do not get the common one, by client."""
        return {}

    @abstractmethod
    def rebuild(self, serving: ServerAccess, imprint: "Imprint", delivery: Delivery) -> Tensor:
        """The images in what the channel delivered, shape (K, C, H, W) in [0, 1]."""

    def note(self, access: ServerAccess) -> str:
        """What the attack asks of clients beyond an honest round: which layers they must not train."""
        behind = " and the network behind it" if slack_of(access) else ""
        return f"clients do not train the layer after the imprint{behind}"


@dataclass(frozen=True, eq=False)
class Imprint:
    """A network behind an imprint layer, the `place`-th of its layers, and the bins of that layer."""

    network: nn.Sequential
    place: int
    bins: Bins

    def read(self, access: ServerAccess, sent: Tensor, delivery: Delivery) -> tuple[Tensor, Tensor]:
        """What each bin's samples add to the update: weighted inputs, shape (k, d), and weights, (k,)."""
        sizes = [access.sizes[client] for client in delivery.clients]
        decayed = mean_decay(access.protocol, sent, sizes)
        moved, decay = (access.protocol.layout.named(vector) for vector in (delivery.mean, decayed))
        names = (f"{self.place}.weight", f"{self.place}.bias")
        weight, bias = (moved[name].double() - decay[name].double() for name in names)
        return bin_sums(weight * self.bins.signs[:, None], bias * self.bins.signs)


def craft(
    access: ServerAccess,
    auxiliary: Images,
    *,
    bins: int,
    law: Law,
    row: Tensor,
    front: Sequence[nn.Module] = (),
    offset: float = 0.0,
) -> Imprint:
    """The agreed network in its current state behind an imprint layer, itself behind the layers of `front`.

    `row`, shape (d,), turns what `front` gives into the brightness plus `offset`.
    """
    network = deepcopy(access.protocol.architecture)
    write_vector(network, access.current)
    brightness = auxiliary.x.double().flatten(1).mean(1)
    sorted_into = Bins(thresholds(brightness, bins, law))
    with torch.no_grad():
        inputs = nn.Sequential(*front, nn.Flatten())(auxiliary.x[:CALIBRATION]).double()
    fixed = fixed_picture(network, auxiliary)
    gain = choose_gain(Calibration(network, fixed, sorted_into, auxiliary, brightness, inputs), access)
    sense, answer = nn.Linear(len(row), bins), nn.Linear(bins, fixed.picture.numel())
    direction = fixed.direction.flatten() * gain.columns
    with torch.no_grad():
        sense.weight.copy_((gain.rows * row).expand(bins, -1))
        sense.bias.copy_(-gain.rows * (sorted_into.thresholds + offset))
        answer.weight.copy_(direction[:, None] * sorted_into.signs)
        middle = sorted_into.answer(brightness).mean() * gain.rows
        answer.bias.copy_(fixed.picture.flatten() - direction * middle)
    answer.requires_grad_(False)
    if slack_of(access):
        # The gain is chosen for the network as it is sent; one that learns weighs later batches otherwise.
        network.requires_grad_(False)
    unflatten = nn.Unflatten(1, tuple(fixed.picture.shape))
    layers = (*front, nn.Flatten(), sense, nn.ReLU(), answer, unflatten, network)
    return Imprint(nn.Sequential(*layers), len(front) + 1, sorted_into)


def slack_of(access: ServerAccess) -> int:
    """How many bins apart one sample may turn up: in one step in none but its own."""
    return 0 if one_step(access.protocol.recipe, access.sizes) else SLACK
