"""A layer that imprints its inputs on its own gradient, put before the network that the clients agreed on.

All rows of the layer measure the brightness of the image, each against a threshold of its own; its answer
is added to one fixed picture, in one fixed direction, so that a sample has the same weight in all rows:
linear leakage. The columns of the second layer are equal but for their signs, which follow + - - +. The
signs are known, so nothing is lost by them, and the sum over the rows stays within a few bins' width instead
of growing with their number: the network behind sees nearly the same picture for every sample and answers
tamely however loud the gradient is made. The second layer is frozen, as layers are in fine-tuning, and
where clients take several steps so is the network behind it.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import ServerAccess
from glasshouse.attacks.crafted.leakage import Law, bin_sums, check_law, quotients, thresholds
from glasshouse.attacks.crafted.sorting import signs
from glasshouse.attacks.inversion.updates import mean_decay
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import write_vector
from glasshouse.options import check_whole

PICTURES = 32
"""Among how many auxiliary images the one is chosen that the network sees in place of every sample."""
CALIBRATION = 256
"""The most auxiliary images that the gain is measured on."""
REACH = 1.0
"""The largest entry that a client's update should have; channels quantise, and cut what is too large."""
SWING = 0.05
"""How far the picture that the network sees may move between samples, in units of the pixels' range."""
DRIFT = 1.0
"""How far local steps may move a threshold, in bins."""
SLACK = 3
"""How many bins apart a sample may turn up where clients take several steps."""
SAME = 0.05
"""Up to which root mean square difference two images from neighbouring bins are the same one."""
TINY = 1e-12
"""What stands in for a measured zero."""
LOUD = 5.0
"""How far above the empty bins a bin must stand to count as occupied."""


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of brightness by their rising thresholds, shape (k,), and the rows' signs in the second layer."""

    thresholds: Tensor

    @property
    def signs(self) -> Tensor:
        """The sign of each row's column in the second layer, shape (k,)."""
        return signs(len(self.thresholds))

    @property
    def width(self) -> float:
        """The usual width of a bin."""
        return max(float(self.thresholds[1:].diff().median()), TINY) if len(self.thresholds) > 2 else 1.0

    def bounds(self, slack: int) -> tuple[Tensor, Tensor]:
        """The least and the greatest brightness in each bin and `slack` bins around it, shape (k,) each."""
        edges = torch.cat([torch.zeros(1), self.thresholds[1:], torch.ones(1)]).clamp(0, 1)
        places = torch.arange(len(self.thresholds))
        return edges[(places - slack).clamp(min=0)], edges[(places + 1 + slack).clamp(max=len(edges) - 1)]

    def answer(self, brightness: Tensor) -> Tensor:
        """The signed sum of the rows, shape (N,), for images of this brightness, shape (N,)."""
        return (brightness.double()[:, None] - self.thresholds).relu() @ self.signs


@dataclass(frozen=True, eq=False)
class Stage:
    """What the network sees: the picture (C, H, W), and the direction of the same shape it moves in."""

    picture: Tensor
    direction: Tensor


@dataclass(frozen=True)
class Gain:
    """The factor of the rows and their biases, and that of the second layer."""

    rows: float
    columns: float


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


def check_bins(attack: str, bins: int, law: str) -> None:
    """Refuse options that make no imprint layer."""
    check_whole(attack, "bins", bins, 2, 65536)
    check_law(attack, law)


def may_rebuild(access: ServerAccess) -> Callable[[nn.Module], ServerAccess]:
    """The way to clients that train another network, if the server was granted to change it."""
    if access.rebuilt is None:
        raise CannotRun("the server may not change the network, and an imprint layer is a change")
    return access.rebuilt


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
    stage = _set_stage(network, auxiliary)
    gain = _choose_gain(_Trial(network, stage, sorted_into, auxiliary, brightness, inputs), access)
    sense, answer = nn.Linear(len(row), bins), nn.Linear(bins, stage.picture.numel())
    direction = stage.direction.flatten() * gain.columns
    with torch.no_grad():
        sense.weight.copy_((gain.rows * row).expand(bins, -1))
        sense.bias.copy_(-gain.rows * (sorted_into.thresholds + offset))
        answer.weight.copy_(direction[:, None] * sorted_into.signs)
        middle = sorted_into.answer(brightness).mean() * gain.rows
        answer.bias.copy_(stage.picture.flatten() - direction * middle)
    answer.requires_grad_(False)
    if slack_of(access):
        # The gain is chosen for the network as it is sent; one that learns weighs later batches otherwise.
        network.requires_grad_(False)
    unflatten = nn.Unflatten(1, tuple(stage.picture.shape))
    layers = (*front, nn.Flatten(), sense, nn.ReLU(), answer, unflatten, network)
    return Imprint(nn.Sequential(*layers), len(front) + 1, sorted_into)


def noise_level(readings: Tensor, samples: int) -> float:
    """The size of a reading, one of each bin, shape (k,), that `samples` samples leave to empty bins.

    Of k bins a share of about (1 - 1/k)^samples is empty; nine in ten of them read less than this.
    """
    return float(readings.abs().quantile(0.9 * (1 - 1 / len(readings)) ** samples))


def occupied(readings: Tensor, samples: int) -> Tensor:
    """The bins whose reading, shape (k,), stands out from those that `samples` samples leave empty.

    The strongest come first.
    """
    strength = readings.abs()
    found = (strength > LOUD * noise_level(readings, samples)).nonzero().flatten()
    return found[strength[found].argsort(descending=True)]


def decode(
    sums: Tensor, weights: Tensor, samples: int, slack: int, shape: tuple[int, int, int], offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """At most `samples` images, shape (K, C, H, W) in [0, 1], and the size of their weights, strongest first.

    From the pixels' sums, shape (k, C H W), each with `offset` on top, and the weights, shape (k,). A sample
    may turn up in bins that are up to `slack` apart; it counts once.
    """
    places = occupied(weights, samples * (1 + slack))
    pixels = quotients(sums[places], weights[places]) - offset
    x = pixels.nan_to_num().clamp(0, 1)
    kept = _distinct(x, places, slack)[:samples]
    return x[kept].reshape(-1, *shape).float(), weights[places[kept]].abs()


def frozen_words(access: ServerAccess) -> str:
    """What a finding says of the layers that clients must leave as they were sent."""
    behind = " and the network behind it" if slack_of(access) else ""
    return f"clients do not train the layer after the imprint{behind}"


def slack_of(access: ServerAccess) -> int:
    """How many bins apart one sample may turn up: in one step in none but its own."""
    return 0 if max(map(access.protocol.recipe.total_steps, access.sizes)) == 1 else SLACK


def _distinct(x: Tensor, places: Tensor, slack: int) -> Tensor:
    """Which rows of x, shape (K, d), to keep so that no image comes twice from bins up to `slack` apart."""
    if not slack:
        return torch.arange(len(x))
    alike = torch.cdist(x, x) < SAME * math.sqrt(x.shape[1])
    twins = (alike & ((places[:, None] - places).abs() <= slack)).tril(-1)
    kept = torch.ones(len(x), dtype=torch.bool)
    for row, twin in enumerate(twins):
        kept[row] = not (twin & kept).any()
    return kept.nonzero().flatten()


def _set_stage(network: nn.Module, auxiliary: Images) -> Stage:
    """The picture that leaves the network least decided, and a direction in which every class answers.

    A sample's weight is how much its loss changes along the direction: p.r - r_y, where r are the changes of
    the logits and p the network's answer. With r of alternating signs it is far from zero for all classes
    y unless p is sure of one.
    """
    network = deepcopy(network).train()

    def logits(picture: Tensor) -> Tensor:
        # Clients' batches hold the picture many times over; batch norm asks for at least two.
        with torch.random.fork_rng(devices=[]):
            answers: Tensor = network(picture.expand(2, *picture.shape))
        return answers.mean(0)

    with torch.no_grad():
        sureness = [float(logits(picture).softmax(0).max()) for picture in auxiliary.x[:PICTURES]]
    picture = auxiliary.x[sureness.index(min(sureness))].clone().requires_grad_()
    slopes = [
        torch.autograd.grad(logit, picture, retain_graph=True)[0].flatten() for logit in logits(picture)
    ]
    if not all(slope.isfinite().all() for slope in slopes):
        raise CannotRun("the network's gradients with respect to its input are not finite")
    wanted = 1.0 - 2.0 * (torch.arange(len(slopes)) % 2).double()
    direction = torch.linalg.pinv(torch.stack(slopes).double(), rtol=1e-3) @ wanted
    size = float(direction.abs().max())
    if not (math.isfinite(size) and size > 0):
        raise CannotRun("the network passes no gradient to its input, so nothing would be imprinted")
    return Stage(picture.detach(), (direction / size).reshape(picture.shape))


@dataclass(frozen=True, eq=False)
class _Trial:
    """What the gain is tried on: the brightness of auxiliary images, (N,), and the imprint layer's inputs."""

    network: nn.Module
    stage: Stage
    bins: Bins
    auxiliary: Images
    brightness: Tensor
    inputs: Tensor

    def weights(self, count: int) -> Tensor:
        """How much the losses of `count` images change with the rows' answer, at columns of gain 1."""
        moved = torch.zeros(count, 1, 1, 1, requires_grad=True)
        network = deepcopy(self.network).train()
        with torch.random.fork_rng(devices=[]):
            logits = network(self.stage.picture + moved * self.stage.direction.float())
        loss = F.cross_entropy(logits, self.auxiliary.y[:count], reduction="sum")
        return torch.autograd.grad(loss, moved)[0].flatten().double()

    def swing(self) -> float:
        """How far the rows' answer strays between images, at rows of gain 1."""
        answers = self.bins.answer(self.brightness)
        return float((answers - answers.mean()).abs().max())

    def drift(self, weights: Tensor) -> float:
        """How many bins a step of unit size moves a threshold, at rows and columns of gain 1.

        A sample's weight times x.x' + 1 is what it adds to an active row's measurement of another one.
        """
        count = len(weights)
        active = (self.brightness[:count] > self.bins.thresholds[:, None]).double()
        alike = self.inputs[:count] @ self.inputs[:count].T + 1
        moved = float(((active * weights) @ alike).abs().max()) / count
        return moved / self.bins.width


def _choose_gain(trial: _Trial, access: ServerAccess) -> Gain:
    """The loudest gain that keeps updates within REACH, the picture within SWING and thresholds within DRIFT.

    Updates grow with the gain of the columns, the picture with that of columns times rows; thresholds, which
    only matter where clients take more than one step, move with columns over rows.
    """
    recipe, sizes = access.protocol.recipe, access.sizes
    weights = trial.weights(min(max(2, *map(recipe.batch, sizes)), len(trial.inputs)))
    travel = max(recipe.effective_rate(size) for size in sizes)
    loudest = REACH / max(travel * float(weights.abs().max()), TINY)
    product = SWING / max(trial.swing(), TINY)
    if all(recipe.total_steps(size) == 1 for size in sizes):
        return Gain(min(1.0, product / loudest), loudest)
    ratio = DRIFT / max(travel * trial.drift(weights), TINY)
    columns = min(loudest, math.sqrt(ratio * product))
    return Gain(columns / ratio, columns)
